// AnyAddress: the address by which a server hears everybody who reaches its machine.
//
// "::" hears both families where the kernel has IPv6, which is what a dual-stack or IPv6 cluster
// wants; where it has not, binding it fails, and "0.0.0.0" is all there is. Any thread; opens and
// closes one socket.
#pragma once

#include <string>

namespace crowdsurf {

// `wanted`, but "0.0.0.0" for a "::" that cannot be bound here.
std::string AnyAddress(const std::string& wanted);

}  // namespace crowdsurf
