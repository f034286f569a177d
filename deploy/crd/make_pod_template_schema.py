#!/usr/bin/env python3
"""Makes pod-template-schema.json from an API server's OpenAPI: the mixed schema of spec.template.

Usage: kubectl get --raw /openapi/v3/api/v1 | make_pod_template_schema.py > pod-template-schema.json

Mixed (the pod's life, measured on Kubernetes 1.34): everything typed, so that types, typos inside containers and CEL work;
unknown fields kept at the root of the pod's spec only, so that new PodSpec fields survive an old CRD. Descriptions,
ephemeral containers and most of metadata are left out: the CRD must stay under 100 KB of compact JSON.
"""
import json
import sys

LEFT_OUT = {"io.k8s.api.core.v1.PodSpec": {"ephemeralContainers"}}
METADATA = {"type": "object", "properties": {
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "annotations": {"type": "object", "additionalProperties": {"type": "string"}}}}
KEPT = ("type", "format", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


def resolve(schema, schemas, name=""):
    """The structural schema of `schema`, every reference written out."""
    if "allOf" in schema and len(schema["allOf"]) == 1:
        schema = {**schema["allOf"][0], **{k: v for k, v in schema.items() if k != "allOf"}}
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if name == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":
            return METADATA
        target = schemas[name]
        if name == "io.k8s.apimachinery.pkg.api.resource.Quantity" or "oneOf" in target:
            return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        return resolve(target, schemas, name)
    out = {key: schema[key] for key in KEPT if key in schema}
    if "oneOf" in schema:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if "properties" in schema:
        skip = LEFT_OUT.get(name, set())
        out["properties"] = {k: resolve(v, schemas) for k, v in schema["properties"].items() if k not in skip}
    if schema.get("required"):
        out["required"] = [r for r in schema["required"] if r in out.get("properties", {})]
    if "items" in schema:
        out["items"] = resolve(schema["items"], schemas)
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = resolve(schema["additionalProperties"], schemas)
    # A list-map's keys must be required or have a default. A default inside items is a difference for ever to tools that
    # compare with the file they applied, so a list with an optional key is one value.
    keys = out.get("x-kubernetes-list-map-keys", [])
    if any(key not in out["items"].get("required", []) for key in keys):
        del out["x-kubernetes-list-map-keys"]
        out["x-kubernetes-list-type"] = "atomic"
    return out


def main():
    schemas = json.load(sys.stdin)["components"]["schemas"]
    template = resolve(schemas["io.k8s.api.core.v1.PodTemplateSpec"], schemas)
    spec = template["properties"]["spec"]
    spec["x-kubernetes-preserve-unknown-fields"] = True
    json.dump(template, sys.stdout, sort_keys=True, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
