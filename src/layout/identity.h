// Identity of cached blocks: what a stored page may be reused for (docs/architecture.md 3).
//
// A key root binds everything that decides a page's bytes besides the tokens; block hashes chain from it.
// Equal hashes mean equal page bytes. Encodings are fixed (little-endian, length-prefixed), the same in
// every process and on every machine. Plain values and pure functions; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
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

// How the rows of a block came to be. `canonical`: as a cold run computes them. Otherwise computed after
// a bounded encoder replay at this hit boundary (a multiple of the block size, above 0).
struct Provenance {
  uint64_t replayed_at = 0;  // 0: canonical

  bool is_canonical() const { return replayed_at == 0; }
  auto operator<=>(const Provenance&) const = default;
};

struct IdentityFields {
  Digest model;      // weights and config (weights/fingerprint.h)
  Digest tokenizer;  // of tokenizer.json; zero when the model runs on ids
  Digest layout;     // LayoutFingerprint
  std::string numerics_revision;  // kNumericsRevision
  Digest adapter;    // zero without an adapter
  Digest tenant_salt;  // TenantSalt of the authenticated tenant; zero for a single-user engine
};

// Bumped whenever any row, logit or page byte can change for equal inputs.
inline constexpr std::string_view kNumericsRevision = "1";

Digest KeyRoot(const IdentityFields& fields);

// Hash of a full block: parent is the previous block's hash, or the key root for the first block.
BlockHash HashBlock(const BlockHash& parent, Provenance provenance, std::span<const int32_t> tokens);

// HMAC-SHA-256 of the tenant's name (and an optional salt of the tenant's own) under a server secret.
Digest TenantSalt(std::string_view secret, std::string_view tenant, std::string_view cache_salt = {});

Digest Sha256(std::span<const uint8_t> bytes);
Digest Sha256(std::string_view text);

struct CacheLayout;
// Row formats, page layout and block size: everything about a page but its contents.
Digest LayoutFingerprint(const CacheLayout& layout);

}  // namespace emberkv
