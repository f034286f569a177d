// Prints deploy/crd/trainingjobs.yaml: `crowdsurf-crd deploy/crd/pod-template-schema.json`.
#include <fstream>
#include <iostream>

#include "operator/core/job/crd.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: crowdsurf-crd POD_TEMPLATE_SCHEMA.json\n";
    return 2;
  }
  std::ifstream in(argv[1]);
  nlohmann::json schema = nlohmann::json::parse(in, nullptr, false);
  if (schema.is_discarded()) {
    std::cerr << "crowdsurf-crd: " << argv[1] << " is no JSON\n";
    return 2;
  }
  std::cout << crowdsurf::controller::Crd(std::move(schema)).dump() << "\n";
  return 0;
}
