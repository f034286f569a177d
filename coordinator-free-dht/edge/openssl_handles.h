// OpenSSL handles: unique_ptrs for the C objects, and its error queue as text.
//
// For .cc files of edges only. Any thread (OpenSSL's error queue is per thread).
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace crowdsurf::dht::openssl {

template <auto kFree>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};

using KeyHandle = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using CertificateHandle = std::unique_ptr<X509, Deleter<X509_free>>;
using RequestHandle = std::unique_ptr<X509_REQ, Deleter<X509_REQ_free>>;
using BioHandle = std::unique_ptr<BIO, Deleter<BIO_free>>;
using DigestHandle = std::unique_ptr<EVP_MD_CTX, Deleter<EVP_MD_CTX_free>>;
using StoreHandle = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContextHandle = std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;

inline BioHandle ReadBio(const std::string& text) {
  return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
inline BioHandle WriteBio() { return BioHandle(BIO_new(BIO_s_mem())); }
inline std::string Contents(const BioHandle& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

// The oldest error of this thread as a Status, and clears the rest.
inline Status LastError(const std::string& what) {
  char text[256] = "unknown error";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof text);
  }
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", text));
}

// Every certificate in `pem`, in order; possibly none.
inline std::vector<CertificateHandle> ReadCertificates(const std::string& pem) {
  std::vector<CertificateHandle> out;
  const BioHandle bio = ReadBio(pem);
  while (X509* const one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    out.emplace_back(one);
  }
  ERR_clear_error();  // the end of the input is an error there
  return out;
}

}  // namespace crowdsurf::dht::openssl
