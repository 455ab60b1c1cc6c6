#include "layout/identity.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <new>
#include <vector>

#include "formats/row_codec.h"
#include "layout/cache_layout.h"

namespace emberkv {
namespace {

// Changing what follows a name means changing the number in it.
constexpr std::string_view kKeyRootEncoding = "emberkv.key_root.1";
constexpr std::string_view kBlockEncoding = "emberkv.block.1";
constexpr std::string_view kTenantEncoding = "emberkv.tenant.1";
constexpr std::string_view kLayoutEncoding = "emberkv.layout.1";

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <class Unsigned>
void PutLittleEndian(Unsigned value, uint8_t* out) {
  for (size_t i = 0; i < sizeof value; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

// Fetched once: looking the algorithm up costs more than hashing a block.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

struct Sha256Stream::State {
  State() : context(EVP_MD_CTX_new()) {}
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  EVP_MD_CTX* context;
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  if (Algorithm() == nullptr || state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, Algorithm(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Add(std::span<const uint8_t> bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) throw std::bad_alloc();
}

void Sha256Stream::AddField(std::span<const uint8_t> bytes) {
  std::array<uint8_t, 8> length;
  PutLittleEndian(uint64_t{bytes.size()}, length.data());
  Add(length);
  Add(bytes);
}

void Sha256Stream::AddField(std::string_view text) { AddField(Bytes(text)); }

void Sha256Stream::AddField(const Digest& digest) {
  AddField(std::span<const uint8_t>(digest.bytes));
}

void Sha256Stream::AddField(uint64_t value) {
  std::array<uint8_t, 8> bytes;
  PutLittleEndian(value, bytes.data());
  AddField(std::span<const uint8_t>(bytes));
}

Digest Sha256Stream::Finish() {
  Digest digest;
  if (EVP_DigestFinal_ex(state_->context, digest.bytes.data(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return digest;
}

// In one call: half the time of a stream for what is as short as a block's tokens.
Digest Sha256(std::span<const uint8_t> bytes) {
  Digest digest;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.bytes.data(), nullptr, Algorithm(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return digest;
}

Digest Sha256(std::string_view text) { return Sha256(Bytes(text)); }

std::string DigestText(const Digest& digest) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest.bytes) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

Digest KeyRoot(const IdentityFields& fields) {
  Sha256Stream stream;
  stream.AddField(kKeyRootEncoding);
  stream.AddField(fields.model);
  stream.AddField(fields.tokenizer);
  stream.AddField(fields.layout);
  stream.AddField(fields.numerics_revision);
  stream.AddField(fields.adapter);
  stream.AddField(fields.tenant_salt);
  return stream.Finish();
}

BlockHash HashBlock(const BlockHash& parent, Provenance provenance,
                    std::span<const int32_t> tokens) {
  // As Sha256Stream::AddField, but into one buffer, which is hashed at once.
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  constexpr size_t kHeadBytes = 4 * kLengthBytes + kBlockEncoding.size() + sizeof(BlockHash::bytes) + sizeof(uint64_t);
  std::vector<uint8_t> encoded(kHeadBytes + tokens.size() * sizeof(uint32_t));
  uint8_t* out = encoded.data();
  const auto add_number = [&out](auto value) {
    PutLittleEndian(value, out);
    out += sizeof value;
  };
  const auto add_field = [&](std::span<const uint8_t> bytes) {
    add_number(uint64_t{bytes.size()});
    out = std::ranges::copy(bytes, out).out;
  };
  add_field(Bytes(kBlockEncoding));
  add_field(parent.bytes);
  add_number(uint64_t{sizeof provenance.replayed_at});
  add_number(provenance.replayed_at);
  add_number(uint64_t{tokens.size() * sizeof(uint32_t)});
  for (const int32_t token : tokens) add_number(static_cast<uint32_t>(token));
  return Sha256(encoded);
}

Digest TenantSalt(std::string_view secret, std::string_view tenant, std::string_view cache_salt) {
  Sha256Stream stream;
  stream.AddField(kTenantEncoding);
  stream.AddField(tenant);
  stream.AddField(cache_salt);
  const Digest message = stream.Finish();
  Digest salt;
  // A null key would mean "the key of the call before".
  const char* key = secret.empty() ? "" : secret.data();
  if (HMAC(Algorithm(), key, static_cast<int>(secret.size()), message.bytes.data(),
           message.bytes.size(), salt.bytes.data(), nullptr) == nullptr) {
    throw std::bad_alloc();
  }
  return salt;
}

Digest LayoutFingerprint(const CacheLayout& layout) {
  Sha256Stream stream;
  stream.AddField(kLayoutEncoding);
  stream.AddField(uint64_t{static_cast<uint8_t>(RowFormat::kGlobalKv)});
  stream.AddField(uint64_t{layout.kv_row_bytes});
  stream.AddField(uint64_t{static_cast<uint8_t>(RowFormat::kIndexKey)});
  stream.AddField(uint64_t{layout.key_row_bytes});
  stream.AddField(static_cast<uint64_t>(layout.block_size));
  stream.AddField(uint64_t{layout.page_bytes});
  stream.AddField(uint64_t{layout.sources.size()});
  for (const KvSource& source : layout.sources) {
    stream.AddField(static_cast<uint64_t>(source.layer));
    stream.AddField(static_cast<uint64_t>(source.ratio));
    stream.AddField(static_cast<uint64_t>(source.rows_per_block));
    stream.AddField(uint64_t{source.kv_offset});
    stream.AddField(uint64_t{source.key_offset});
  }
  return stream.Finish();
}

}  // namespace emberkv
