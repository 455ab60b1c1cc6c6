// Answers on their way to the client: as one JSON document, or as a stream of events.
//
// One writer per request, used by one thread at a time; request, context, engine and channel outlive it. Pieces of
// several answers may come in any order, those of one answer in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_stream.h"
#include "server/generation.h"
#include "server/logprob_json.h"
#include "server/openai_error.h"
#include "server/reply_channel.h"

namespace emberkv {

// What came of an answer at once.
struct AnswerPiece {
  std::vector<AnswerDelta> deltas;
  std::vector<ReportedToken> tokens;  // where log-probabilities are asked for
  std::string finish_reason;          // of the last piece
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  static std::unique_ptr<AnswerWriter> Make(const GenerationRequest& request, const GenerationContext& context,
                                            const Engine& engine, ReplyChannel* channel);

  // Sends nothing yet. An answer's first piece may be empty: its first token came.
  virtual void Add(size_t answer, AnswerPiece piece) = 0;
  // Whether Flush would not wait for the client.
  virtual bool HasRoom() const = 0;
  // Sends what was added. All of these: false when the client is gone.
  virtual bool Flush() = 0;
  // Nothing has come for a while.
  virtual bool KeepAlive() = 0;
  virtual bool Finish(const GenerationOutcome& outcome) = 0;
  // In place of Finish. The HTTP status counts only where nothing was sent yet.
  virtual bool Fail(const ApiError& error) = 0;
};

}  // namespace emberkv
