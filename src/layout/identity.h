// Identity of cached blocks: what a stored page may be reused for (docs/architecture.md 3).
//
// A key root binds everything that decides a page's bytes besides the tokens; block hashes chain
// from it. Equal hashes mean equal page bytes. Encodings are fixed, the same in every process and
// on every machine: each hash is SHA-256 over fields, each preceded by its length in bytes as a
// little-endian u64; the first field names what is hashed and the version of its encoding, so that
// hashes of different kinds never meet. Integers are little-endian: u32 for tokens, u64 elsewhere.
//
// Plain values and pure functions: any thread. A Sha256Stream belongs to one thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace emberkv {

// A SHA-256 digest.
struct Digest {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;
};

std::string DigestText(const Digest& digest);  // 64 lower-case hex digits

using BlockHash = Digest;

struct DigestHash {  // for unordered containers: digests are uniform already
  size_t operator()(const Digest& digest) const {
    size_t value;
    std::memcpy(&value, digest.bytes.data(), sizeof value);
    return value;
  }
};

// How the rows of a block came to be. `canonical`: as a cold run computes them. Otherwise computed
// after a bounded encoder replay at this hit boundary (a multiple of the block size, above 0).
struct Provenance {
  uint64_t replayed_at = 0;  // 0: canonical

  bool is_canonical() const { return replayed_at == 0; }
  auto operator<=>(const Provenance&) const = default;
};

struct IdentityFields {
  Digest model;                   // weights and config (weights/fingerprint.h)
  Digest tokenizer;               // of tokenizer.json; zero when the model runs on ids
  Digest layout;                  // LayoutFingerprint
  std::string numerics_revision;  // kNumericsRevision
  Digest adapter;                 // zero without an adapter
  Digest tenant_salt;  // TenantSalt of the authenticated tenant; zero for a single-user engine
};

// Bumped whenever any row, logit or page byte can change for equal inputs.
inline constexpr std::string_view kNumericsRevision = "2";

Digest KeyRoot(const IdentityFields& fields);

// Hash of a full block: parent is the previous block's hash, or the key root for the first block.
BlockHash HashBlock(const BlockHash& parent, Provenance provenance,
                    std::span<const int32_t> tokens);

// HMAC-SHA-256 of the tenant's name (and an optional salt of the tenant's own) under a server
// secret. `tenant` is the authenticated identity, never a request's claim. Whoever knows the secret
// can compute everyone's salt; an empty secret protects nobody.
Digest TenantSalt(std::string_view secret, std::string_view tenant,
                  std::string_view cache_salt = {});

struct CacheLayout;
// Row formats, page layout and block size: everything about a page but its contents. Windows and
// tails are no part of a page and do not change it.
Digest LayoutFingerprint(const CacheLayout& layout);

Digest Sha256(std::span<const uint8_t> bytes);
Digest Sha256(std::string_view text);

// SHA-256 of what is added piece by piece. Throws std::bad_alloc when the crypto library cannot
// provide SHA-256, for which it only lacks memory: there is no digest to go on with.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void Add(std::span<const uint8_t> bytes);

  // In the canonical encoding: the length, then the bytes.
  void AddField(std::span<const uint8_t> bytes);
  void AddField(std::string_view text);
  void AddField(const Digest& digest);
  void AddField(uint64_t value);

  // Ends the stream: nothing may be added afterwards.
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace emberkv
