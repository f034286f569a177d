// Private memory: a process that holds keys gives nobody a copy of it.
//
// It leaves no core file, and no other process of its user may trace it or read its memory, its
// environment or its descriptors in /proc. Root may. A program that it becomes by exec can be
// traced again, and keeps the limit of core files. The process reads its own /proc as before.
// Source: prctl(2), PR_SET_DUMPABLE; proc(5); core(5).
#pragma once

namespace crowdsurf {

// At start, before a key is read. For good: nothing here takes it back.
void KeepMemoryPrivate();

}  // namespace crowdsurf
