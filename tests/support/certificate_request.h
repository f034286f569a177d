// NewCertificateRequest: certificate requests as agents send them, and such as no agent sends.
//
// Each call makes a key of its own and drops it. Any thread.
#pragma once

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>

namespace crowdsurf {

// PEM text of a request for a new key of `type` (EVP_PKEY_ED25519, else P-256). spoil: another key
// has signed it.
inline std::string NewCertificateRequest(int type = EVP_PKEY_ED25519, bool spoil = false) {
  EVP_PKEY* key = type == EVP_PKEY_ED25519 ? EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")
                                           : EVP_EC_gen("P-256");
  EVP_PKEY* other = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  X509_REQ* request = X509_REQ_new();
  X509_REQ_set_pubkey(request, key);
  const bool hashes = !spoil && type != EVP_PKEY_ED25519;  // Ed25519 takes no digest
  X509_REQ_sign(request, spoil ? other : key, hashes ? EVP_sha256() : nullptr);
  BIO* out = BIO_new(BIO_s_mem());
  PEM_write_bio_X509_REQ(out, request);
  char* text = nullptr;
  const long length = BIO_get_mem_data(out, &text);
  std::string pem(text, static_cast<size_t>(length));
  BIO_free(out);
  X509_REQ_free(request);
  EVP_PKEY_free(other);
  EVP_PKEY_free(key);
  return pem;
}

}  // namespace crowdsurf
