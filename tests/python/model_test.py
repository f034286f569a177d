#!/usr/bin/env python3
"""The model that a job leaves: read as a state_dict, and exported for Hugging Face's libraries. Needs PyTorch, else skipped."""
import contextlib
import io
import json
import pathlib
import sys
import types
import unittest
import unittest.mock

import client_case
import numpy

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch (Debian: python3-torch)")
    sys.exit(77)
import crowdsurf
from crowdsurf.__main__ import main


class ModelCase(client_case.ClientCase):
    """The format as its page describes it: u64 length of the header, JSON, the tensors' bytes."""

    HEADER = {"__metadata__": {"job": "digits"}, "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
              "n": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]}}
    VALUES = numpy.arange(4, dtype="<f4").tobytes() + (7).to_bytes(8, "little")

    def write(self, header, values=VALUES, length=None, name="model.safetensors"):
        path = pathlib.Path(self.folder.name, name)
        path.parent.mkdir(exist_ok=True)
        text = json.dumps(header).encode()
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + values)
        return path


class ModelTest(ModelCase):
    def test_a_model_comes_back_by_name(self):
        model = crowdsurf.load_model(self.write(self.HEADER))
        self.assertEqual(sorted(model), ["n", "w"])
        torch.testing.assert_close(model["w"], torch.arange(4.0).reshape(2, 2))
        self.assertEqual((int(model["n"]), model["n"].shape), (7, torch.Size([])))

    def test_files_that_are_garbled_or_cut_short_are_refused(self):
        def but(**changes):
            return {**self.HEADER, "w": {**self.HEADER["w"], **changes}}
        short = self.write(self.HEADER, self.VALUES[:-1])
        self.assertRaisesRegex(ValueError, "cut short", crowdsurf.load_model, short)
        for header in (but(shape=[3, 2]), but(dtype="F8"), but(data_offsets=[-4, 12]), but(data_offsets=[8, 4]),
                       but(data_offsets=[0]), but(shape=[float("inf")]), [], {"w": 3}, {"w": {}}):
            with self.subTest(header):
                self.assertRaises(ValueError, crowdsurf.load_model, self.write(header))
        self.assertRaises(ValueError, crowdsurf.load_model, self.write(self.HEADER, length=1 << 60))
        self.assertRaises(ValueError, crowdsurf.load_model, self.write(self.HEADER, length=3))
        many = self.write({**self.HEADER, "more": [0] * (1 << 20)})
        self.assertRaisesRegex(ValueError, "too many values", crowdsurf.load_model, many)

    def test_a_folder_is_that_of_a_checkpoint_or_of_several_files(self):
        path = self.write(self.HEADER, name="checkpoint/model.safetensors")
        self.assertEqual(sorted(crowdsurf.load_model(path.parent)), ["n", "w"])
        first = {"w": self.HEADER["w"]}
        self.write(first, self.VALUES[:16], name="several/model-1.safetensors")
        second = self.write({"n": {**self.HEADER["n"], "data_offsets": [0, 8]}}, self.VALUES[16:], name="several/model-2.safetensors")
        index = second.with_name("model.safetensors.index.json")
        index.write_text(json.dumps({"weight_map": {"w": "model-1.safetensors", "n": "model-2.safetensors"}}))
        model = crowdsurf.load_model(second.parent)
        self.assertEqual((sorted(model), int(model["n"])), (["n", "w"], 7))
        for wrong in ("{}", "[]", "{", '{"weight_map": {"w": "../checkpoint/model.safetensors"}}', '{"weight_map": {"w": 3}}'):
            index.write_text(wrong)
            self.assertRaisesRegex(ValueError, "no index of safetensors", crowdsurf.load_model, second.parent)
        self.assertRaises(FileNotFoundError, crowdsurf.load_model, self.folder.name)

    def test_a_url_is_opened_by_fsspec(self):
        path = self.write(self.HEADER)

        def opens(url, mode):
            self.assertEqual((url, mode), ("memory://bucket/model", "rb"))
            return open(path, mode)
        with unittest.mock.patch.dict(sys.modules, fsspec=types.SimpleNamespace(open=opens)):
            self.assertEqual(int(crowdsurf.load_model("memory://bucket/model")["n"]), 7)
        with unittest.mock.patch.dict(sys.modules, fsspec=None):
            self.assertRaisesRegex(ImportError, "needs the package fsspec", crowdsurf.load_model, "memory://bucket/model")

    def test_a_model_goes_out_and_comes_back_as_the_start_of_another_job(self):
        torch.manual_seed(7)
        net, start = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        header, values = {}, b""
        for name, value in net.state_dict().items():
            blob = value.numpy().tobytes()
            header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(values), len(values) + len(blob)]}
            values += blob
        start.load_state_dict(crowdsurf.load_model(self.write(header, values)))
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(start.state_dict()[name], value), name)


class ExportTest(ModelCase):
    TRAINED = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    BASE = {"__metadata__": {"format": "pt"}, "frozen": {"dtype": "F8", "shape": [3], "data_offsets": [0, 3]},
            "w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [3, 11]}}

    def command(self, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = main(["export", *map(str, words)])
        return code, said.getvalue()

    def read(self, path):
        """The header as another reader of the format sees it, and the bytes."""
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        self.assertEqual(start % 8, 0)
        return json.loads(data[8:start]), data[start:]

    def test_what_the_job_left_gets_the_mark_that_transformers_wants(self):
        out = pathlib.Path(self.folder.name, "out")
        self.assertEqual(self.command(self.write(self.HEADER), out)[0], 0)
        header, data = self.read(out / "model.safetensors")
        self.assertEqual((header.pop("__metadata__"), data), ({"format": "pt"}, self.VALUES))
        self.assertEqual(header, {name: entry for name, entry in self.HEADER.items() if name != "__metadata__"})
        code, said = self.command(out, out)
        self.assertEqual(code, 2)
        self.assertIn("is there already", said)

    def test_like_another_model_it_has_its_types_its_frozen_tensors_and_its_configuration(self):
        trained, base = self.write(self.TRAINED, self.VALUES[:16]), self.write(self.BASE, b"abc" + bytes(8), name="base/model.safetensors")
        base.with_name("config.json").write_text("{}")
        base.with_name("pytorch_model.bin").write_text("old weights")
        out = pathlib.Path(self.folder.name, "out")
        self.assertEqual(self.command(trained, out, "--like", base.parent)[0], 0)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["config.json", "model.safetensors"])
        header, data = self.read(out / "model.safetensors")
        self.assertEqual(header, self.BASE)
        self.assertEqual(data[:3], b"abc")
        numpy.testing.assert_array_equal(numpy.frombuffer(data[3:], "<u2"), [0, 0x3F80, 0x4000, 0x4040])   # 0, 1, 2, 3

    def test_a_job_of_another_model_is_refused_and_the_tensor_is_named(self):
        base = self.write(self.BASE, b"abc" + bytes(8), name="base/model.safetensors")
        out = pathlib.Path(self.folder.name, "out")
        for trained, words in (({"v": self.TRAINED["w"]}, "has a tensor v, which"),
                               ({"w": {**self.TRAINED["w"], "shape": [4]}}, r"w is \[4\] in the job's model and \[2, 2\]"),
                               ({"frozen": {**self.TRAINED["w"], "dtype": "I32", "shape": [3], "data_offsets": [0, 12]}}, "F8")):
            code, said = self.command(self.write(trained, self.VALUES[:16]), out, "--like", base.parent)
            self.assertEqual(code, 2)
            self.assertRegex(said, words)
            self.assertFalse(out.exists())
        self.assertEqual(self.command(out, out)[0], 2)


if __name__ == "__main__":
    unittest.main()
