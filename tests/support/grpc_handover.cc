// What gRPC hands from one thread to another, as the thread sanitizer must be told (preset tsan
// only).
//
// gRPC of the distribution is not instrumented: that a callback runs after the call that asked for
// it is seen by nobody, and whatever a stream's owner wrote before looks like a race with its
// callbacks. Every operation passes grpc_call_start_batch, and its tag is the functor that is run
// when it is over (grpc 1.51, cq_end_op_for_callback): here the one is a
// release of the tag and the other its acquisition. Linked into the tests, whose definition comes
// before the library's. What was made before a server was started is there for the handlers of its
// calls, which begin with grpc_call_ref, and so it is with a verifier of certificates. Tags of
// other kinds, and functors of the library's own, are left alone: nothing of ours is run by them.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

extern "C" {
extern const char __executable_start, etext;  // of this program's code, by the linker
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace {

using Functor = grpc_completion_queue_functor;
using Run = void (*)(Functor*, int);

// The table's own lock must not order what it is asked by, nor its memory be looked at.
struct Unseen {
  Unseen() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
};

struct Table {
  std::mutex mutex;
  std::unordered_map<Functor*, Run> runs;  // of operations under way
};

Table& Runs() {
  static Table* const table = new Table;
  return *table;
}

char started;  // its address: what the start of a server hands to the handlers

template <class F>
F Next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

bool IsOurs(Run run) {
  const auto at = reinterpret_cast<uintptr_t>(run);
  return at >= reinterpret_cast<uintptr_t>(&__executable_start) &&
         at < reinterpret_cast<uintptr_t>(&etext);
}

void Acquire(Functor* functor, int ok) {
  Run run;
  {
    const Unseen unseen;
    Table& table = Runs();
    const std::lock_guard lock(table.mutex);
    const auto at = table.runs.find(functor);
    run = at->second;
    table.runs.erase(at);
  }
  functor->functor_run = run;
  __tsan_acquire(functor);
  run(functor, ok);
}

// The functions of a verifier are those of grpc::experimental::ExternalCertificateVerifier, always.
grpc_tls_certificate_verifier_external verifier;

int Verify(void* self, grpc_tls_custom_verification_check_request* request,
           grpc_tls_on_custom_verification_check_done_cb callback, void* argument,
           grpc_status_code* status, char** details) {
  __tsan_acquire(self);
  const int done = verifier.verify(self, request, callback, argument, status, details);
  __tsan_release(self);
  return done;
}

void Destruct(void* self) {
  __tsan_acquire(self);
  verifier.destruct(self);
}

}  // namespace

extern "C" grpc_tls_certificate_verifier* grpc_tls_certificate_verifier_external_create(
    grpc_tls_certificate_verifier_external* made) {
  static const auto create = Next<decltype(&grpc_tls_certificate_verifier_external_create)>(
      "grpc_tls_certificate_verifier_external_create");
  {
    const Unseen unseen;
    const std::lock_guard lock(Runs().mutex);
    verifier = *made;
  }
  made->verify = Verify;
  made->destruct = Destruct;
  __tsan_release(made->user_data);
  return create(made);
}

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                 void* tag, void* reserved) {
  static const auto start = Next<decltype(&grpc_call_start_batch)>("grpc_call_start_batch");
  auto* const functor = static_cast<Functor*>(tag);
  if (functor != nullptr && IsOurs(functor->functor_run)) {
    if (functor->functor_run != Acquire) {
      const Unseen unseen;
      Table& table = Runs();
      const std::lock_guard lock(table.mutex);
      table.runs[functor] = std::exchange(functor->functor_run, Acquire);
    }
    __tsan_release(functor);
  }
  return start(call, ops, count, tag, reserved);
}

extern "C" void grpc_server_start(grpc_server* server) {
  static const auto start = Next<decltype(&grpc_server_start)>("grpc_server_start");
  __tsan_release(&started);
  start(server);
}

extern "C" void grpc_call_ref(grpc_call* call) {
  static const auto ref = Next<decltype(&grpc_call_ref)>("grpc_call_ref");
  ref(call);
  __tsan_acquire(&started);
}
