// Asio for the tensor transport: the same configuration as everywhere.
//
// Purpose: files of the tensor transport include this before anything that includes Asio itself.
// What it says about the order of headers: coordinator-free-dht/edge/asio.h.
#pragma once

#include "coordinator-free-dht/edge/asio.h"
