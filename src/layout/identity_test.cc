#include "layout/identity.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "layout/cache_layout.h"

namespace emberkv {
namespace {

// The expected digests below come from this program, written from the description in identity.h:
//
//   import hashlib, hmac, struct
//   def F(b): return struct.pack("<Q", len(b)) + b
//   def U(n): return F(struct.pack("<Q", n))
//   def H(*f): return hashlib.sha256(b"".join(f)).digest()
//   def D(n): return bytes([n]) * 32
//   root = H(F(b"emberkv.key_root.1"), F(D(1)), F(D(2)), F(D(3)), F(b"1"), F(D(4)), F(D(5)))
//   def block(parent, at, tokens):
//       return H(F(b"emberkv.block.1"), F(parent), U(at),
//                F(struct.pack(f"<{len(tokens)}I", *tokens)))
//   b0 = block(root, 0, range(128))
//   b1 = block(b0, 0, range(128, 256))
//   r1 = block(b0, 128, range(128, 256))
//   def salt(secret, tenant, own=b""):
//       message = H(F(b"emberkv.tenant.1"), F(tenant), F(own))
//       return hmac.new(secret, message, "sha256").digest()
//   sources, at = [], 0
//   for layer, ratio in ((2, 2), (8, 2), (14, 2), (20, 1)):
//       rows = 128 // ratio
//       sources += [layer, ratio, rows, at, at + 288 * rows]
//       at += 356 * rows
//   layout = H(F(b"emberkv.layout.1"), U(1), U(288), U(2), U(68), U(128), U(at), U(4),
//              *map(U, sources))

Digest Filled(uint8_t value) {
  Digest digest;
  digest.bytes.fill(value);
  return digest;
}

IdentityFields SomeFields() { return {Filled(1), Filled(2), Filled(3), "1", Filled(4), Filled(5)}; }

std::vector<int32_t> Tokens(int begin, int end) {
  std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

CacheLayout ReleasedLayout(int block_size = kDefaultBlockSize,
                           const std::function<void(ModelConfig*)>& change = nullptr) {
  Result<ModelConfig> config = LoadModelConfig(EMBERKV_TEST_DATA "/configs/released.json");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  if (!config.ok()) return {};
  if (change) change(&*config);
  const Result<CacheLayout> layout = MakeCacheLayout(*config, block_size);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return layout.ok() ? *layout : CacheLayout();
}

TEST(Identity, DigestsArePublishedSha256) {
  EXPECT_EQ(DigestText(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(DigestText(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256Stream stream;
  const std::vector<uint8_t> letters = {'a', 'b', 'c'};
  for (const uint8_t& letter : letters) stream.Add({&letter, 1});
  EXPECT_EQ(stream.Finish(), Sha256("abc"));
}

TEST(Identity, Case_I05_HashesAreThoseOfTheGoldenVectors) {
  const Digest root = KeyRoot(SomeFields());
  EXPECT_EQ(DigestText(root), "563c9d9d9af0ec0c7fed6a66b225d6af60873ac5a87cfbbb0b1b4ac64d680107");
  const BlockHash first = HashBlock(root, {}, Tokens(0, 128));
  EXPECT_EQ(DigestText(first), "c35eff1b1cedb6d2a0eec8afabc3eb524fa56101e476e4db435c6519d8151f74");
  EXPECT_EQ(DigestText(HashBlock(first, {}, Tokens(128, 256))),
            "958b867d68120197def7f3b984f079dcf8f11027748e441f2370d5eb83286da2");
  EXPECT_EQ(DigestText(HashBlock(first, {128}, Tokens(128, 256))),
            "b890b7e133bdd9627719faf41df1b7a2cf4eb95f2a623687f779bcce5c3a5010");
  EXPECT_EQ(DigestText(TenantSalt("secret", "alice")),
            "c5f476647ff57a6e75ed3c0d1bee2354b980baf210c87f95f5752ddafb36b489");
  EXPECT_EQ(DigestText(TenantSalt("secret", "alice", "own")),
            "0b9b62ea14d9b825979450c43fa2baba7f626a87f6744d8ca3bf2df05a879ca3");
  EXPECT_EQ(DigestText(LayoutFingerprint(ReleasedLayout())),
            "41781fbc9d74c4fd4b216b62303cebcf0626c44ba4748e6fea71c3d615788ccb");
}

TEST(Identity, Case_I04_EveryFieldAloneChangesTheRoot) {
  const std::vector<std::function<void(IdentityFields*)>> mutations = {
      [](IdentityFields* f) { f->model.bytes[31] ^= 1; },
      [](IdentityFields* f) { f->tokenizer.bytes[31] ^= 1; },
      [](IdentityFields* f) { f->layout.bytes[31] ^= 1; },
      [](IdentityFields* f) { f->numerics_revision = "2"; },
      [](IdentityFields* f) { f->numerics_revision = ""; },
      [](IdentityFields* f) { f->adapter.bytes[31] ^= 1; },
      [](IdentityFields* f) { f->tenant_salt.bytes[31] ^= 1; },
      [](IdentityFields* f) { std::swap(f->model, f->tokenizer); },
  };
  std::set<Digest> roots = {KeyRoot(SomeFields())};
  EXPECT_TRUE(roots.contains(KeyRoot(SomeFields())));
  for (size_t i = 0; i < mutations.size(); ++i) {
    IdentityFields fields = SomeFields();
    mutations[i](&fields);
    EXPECT_TRUE(roots.insert(KeyRoot(fields)).second) << "mutation " << i;
  }
}

TEST(Identity, Case_I04_ParentProvenanceTokensAndOrderEachChangeTheBlockHash) {
  const std::vector<int32_t> tokens = Tokens(0, 128);
  const Digest parent = Filled(9);
  std::set<Digest> hashes = {HashBlock(parent, {}, tokens)};
  EXPECT_TRUE(hashes.contains(HashBlock(parent, {}, Tokens(0, 128))));

  Digest other_parent = parent;
  other_parent.bytes[0] ^= 1;
  EXPECT_TRUE(hashes.insert(HashBlock(other_parent, {}, tokens)).second);
  EXPECT_TRUE(hashes.insert(HashBlock(parent, {128}, tokens)).second);
  EXPECT_TRUE(hashes.insert(HashBlock(parent, {256}, tokens)).second);
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (const int32_t change : {1, 1 << 24}) {
      std::vector<int32_t> changed = tokens;
      changed[i] ^= change;
      EXPECT_TRUE(hashes.insert(HashBlock(parent, {}, changed)).second) << "token " << i;
    }
  }
  std::vector<int32_t> swapped = tokens;
  std::swap(swapped[5], swapped[6]);
  EXPECT_TRUE(hashes.insert(HashBlock(parent, {}, swapped)).second);
  EXPECT_TRUE(hashes.insert(HashBlock(parent, {}, Tokens(0, 127))).second);
  EXPECT_TRUE(hashes.insert(HashBlock(parent, {}, {})).second);
}

TEST(Identity, AHashBindsTheWholeChainBeforeIt) {
  const auto last_of_chain = [](int32_t first_token) {
    std::vector<int32_t> tokens = Tokens(0, 512);
    tokens[0] = first_token;
    Digest hash = KeyRoot(SomeFields());
    for (size_t begin = 0; begin < tokens.size(); begin += 128) {
      hash = HashBlock(hash, {}, std::span<const int32_t>(tokens).subspan(begin, 128));
    }
    return hash;
  };
  EXPECT_EQ(last_of_chain(0), last_of_chain(0));
  EXPECT_NE(last_of_chain(0), last_of_chain(7));
}

TEST(Identity, Case_T02_SaltsOfTenantsNeverMeet) {
  std::set<Digest> salts = {TenantSalt("secret", "alice", "x")};
  EXPECT_TRUE(salts.insert(TenantSalt("other secret", "alice", "x")).second);
  EXPECT_TRUE(salts.insert(TenantSalt("", "alice", "x")).second);
  EXPECT_TRUE(salts.insert(TenantSalt("secret", "bob", "x")).second);
  // A salt of the tenant's own separates, and cannot imitate another tenant.
  EXPECT_TRUE(salts.insert(TenantSalt("secret", "alice")).second);
  EXPECT_TRUE(salts.insert(TenantSalt("secret", "alicex")).second);
  EXPECT_TRUE(salts.insert(TenantSalt("secret", "alic", "ex")).second);
}

TEST(Identity, Case_I03_EverythingAboutAPageChangesTheLayoutFingerprint) {
  const std::vector<std::function<void(CacheLayout*)>> mutations = {
      [](CacheLayout* l) { l->kv_row_bytes += 1; },
      [](CacheLayout* l) { l->key_row_bytes += 1; },
      [](CacheLayout* l) { l->block_size += 1; },
      [](CacheLayout* l) { l->page_bytes += 1; },
      [](CacheLayout* l) { l->sources.pop_back(); },
      [](CacheLayout* l) { l->sources[1].layer += 1; },
      [](CacheLayout* l) { l->sources[1].ratio += 1; },
      [](CacheLayout* l) { l->sources[1].rows_per_block += 1; },
      [](CacheLayout* l) { l->sources[1].kv_offset += 1; },
      [](CacheLayout* l) { l->sources[1].key_offset += 1; },
      [](CacheLayout* l) { std::swap(l->sources[0], l->sources[1]); },
  };
  std::set<Digest> fingerprints = {LayoutFingerprint(ReleasedLayout())};
  for (size_t i = 0; i < mutations.size(); ++i) {
    CacheLayout layout = ReleasedLayout();
    mutations[i](&layout);
    EXPECT_TRUE(fingerprints.insert(LayoutFingerprint(layout)).second) << "mutation " << i;
  }
  EXPECT_TRUE(fingerprints.insert(LayoutFingerprint(ReleasedLayout(64))).second);
  EXPECT_TRUE(fingerprints
                  .insert(LayoutFingerprint(
                      ReleasedLayout(128, [](ModelConfig* c) { c->head_dim = 1024; })))
                  .second);
}

TEST(Identity, WindowsTailsAndRolesDoNotChangeTheLayoutFingerprint) {
  const std::vector<std::function<void(CacheLayout*)>> mutations = {
      [](CacheLayout* l) { l->window_row_bytes += 1; },
      [](CacheLayout* l) { l->window_bytes_per_layer += 1; },
      [](CacheLayout* l) { l->tail_bytes += 1; },
      [](CacheLayout* l) { l->num_tails += 1; },
      [](CacheLayout* l) { l->sources[0].tail_slot += 1; },
      [](CacheLayout* l) { l->decoder_begin.reset(); },
      [](CacheLayout* l) { l->layers.clear(); },
  };
  const Digest expected = LayoutFingerprint(ReleasedLayout());
  for (size_t i = 0; i < mutations.size(); ++i) {
    CacheLayout layout = ReleasedLayout();
    mutations[i](&layout);
    EXPECT_EQ(LayoutFingerprint(layout), expected) << "mutation " << i;
  }
  EXPECT_EQ(LayoutFingerprint(ReleasedLayout(128, [](ModelConfig* c) { c->sliding_window = 64; })),
            expected);
}

}  // namespace
}  // namespace emberkv
