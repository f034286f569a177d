#include "base/log.h"

#include <cstdio>

namespace crowdsurf {

LogField::LogField(std::string_view k, double v) : key(k) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  value = text;
}

}  // namespace crowdsurf
