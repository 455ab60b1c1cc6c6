#include "store/record_format.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/isa.h"
#include "store/test_pages.h"

namespace emberkv {
namespace {

constexpr RecordPlace kPlace{.segment = 3, .slot = 17, .generation = 5};

std::vector<uint8_t> RecordOf(const TestPage& page, const RecordPlace& place = kPlace) {
  std::vector<uint8_t> record(RecordBytes(page.tokens.size(), page.payload.size()), 0xff);
  EncodeRecord(page.Record(), place, record);
  return record;
}

TEST(RecordFormat, APageOf128TokensFillsItsSlots) {
  // 890 bytes for each of 128 tokens: not a byte of the last slot is lost.
  EXPECT_EQ(RecordBytes(128, 113'920), 28 * kSlotBytes);
  EXPECT_EQ(RecordHeadBytes(128) + 113'920, 28 * kSlotBytes);
}

TEST(RecordFormat, ParsingGivesBackThePage) {
  for (const size_t payload_bytes : {size_t{0}, size_t{1}, size_t{3327}, size_t{3328}, size_t{3329}, size_t{50'000}}) {
    const TestPage page = MakeTestPage(payload_bytes, payload_bytes);
    const std::vector<uint8_t> record = RecordOf(page);
    const auto parsed = ParseRecord(record, kPlace);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->page.key, page.key);
    EXPECT_EQ(parsed->page.parent, page.parent);
    EXPECT_EQ(parsed->page.provenance, page.provenance);
    EXPECT_EQ(parsed->page.tenant, page.tenant);
    EXPECT_EQ(parsed->tokens, page.tokens);
    EXPECT_TRUE(std::ranges::equal(parsed->page.payload, page.payload));
  }
}

TEST(RecordFormat, AllInstructionSetsGiveTheSameChecksum) {
  for (const size_t payload_bytes : {size_t{0}, size_t{1}, size_t{200}, size_t{1000}, size_t{113'920}}) {
    const TestPage page = MakeTestPage(1, payload_bytes);
    std::optional<std::vector<uint8_t>> first;
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      const std::vector<uint8_t> record = RecordOf(page);
      EXPECT_TRUE(!first || *first == record) << IsaName(isa) << ", " << payload_bytes << " bytes";
      first = record;
    }
  }
}

TEST(RecordFormat, Case_W07_EveryFlippedBitIsDetected) {
  const TestPage page = MakeTestPage(1, 700);
  std::vector<uint8_t> record = RecordOf(page);
  std::vector<uint8_t> payload(page.payload.size());
  const GetRequest request = page.Request(payload);
  const auto is_served = [&] {
    return RecordAnswers(SplitRecord(record, page.tokens.size(), page.payload.size()), kPlace, request);
  };
  ASSERT_TRUE(is_served());
  for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
    const auto mask = static_cast<uint8_t>(1u << bit % 8);
    record[bit / 8] ^= mask;
    ASSERT_FALSE(is_served()) << "bit " << bit;
    ASSERT_FALSE(ParseRecord(record, kPlace).ok()) << "bit " << bit;
    record[bit / 8] ^= mask;
  }
  EXPECT_TRUE(is_served());
}

TEST(RecordFormat, ARecordIsSoundAtItsPlaceAndTimeOnly) {
  const std::vector<uint8_t> record = RecordOf(MakeTestPage(1, 700));
  EXPECT_TRUE(ParseRecord(record, kPlace).ok());
  EXPECT_FALSE(ParseRecord(record, {.segment = 4, .slot = 17, .generation = 5}).ok());
  EXPECT_FALSE(ParseRecord(record, {.segment = 3, .slot = 18, .generation = 5}).ok());
  EXPECT_FALSE(ParseRecord(record, {.segment = 3, .slot = 17, .generation = 6}).ok());
}

TEST(RecordFormat, AShorterOrLongerPieceIsNoRecord) {
  std::vector<uint8_t> record = RecordOf(MakeTestPage(1, 5000));
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, kSlotBytes, record.size() - 1}) {
    EXPECT_FALSE(ParseRecord(std::span(record).first(bytes), kPlace).ok()) << bytes;
  }
  record.resize(record.size() + kSlotBytes);
  EXPECT_FALSE(ParseRecord(record, kPlace).ok());
}

TEST(RecordFormat, ASoundRecordAnswersNoOtherRequest) {
  const TestPage page = MakeTestPage(1, 700);
  const std::vector<uint8_t> record = RecordOf(page);
  std::vector<uint8_t> payload(page.payload.size());
  std::vector<TestPage> others(4, page);
  others[0].key.bytes[0] ^= 1;
  others[1].parent.bytes[0] ^= 1;
  others[2].provenance.replayed_at += 128;
  others[3].tokens[127] ^= 1;
  for (const TestPage& other : others) {
    EXPECT_FALSE(RecordAnswers(SplitRecord(record, 128, 700), kPlace, other.Request(payload)));
  }
}

TEST(RecordFormat, ASelfContradictingRecordIsNoRecord) {
  TestPage page = MakeTestPage(1, 700);
  page.key.bytes[5] ^= 1;  // the checksum will be right, the key is not
  EXPECT_FALSE(ParseRecord(RecordOf(page), kPlace).ok());
}

}  // namespace
}  // namespace emberkv
