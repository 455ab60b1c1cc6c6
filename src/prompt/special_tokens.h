// The tokens that give a DeepSeek-V4.1 prompt its form, as text. The tokenizer reads each as one
// id.
#pragma once

#include <string_view>

namespace emberkv {

inline constexpr std::string_view kBosText = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosText = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemText = "<｜System｜>";
inline constexpr std::string_view kUserText = "<｜User｜>";
inline constexpr std::string_view kAssistantText = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminderText = "<｜latest_reminder｜>";
inline constexpr std::string_view kImageText = "<｜deepseek_image｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsmlText = "｜DSML｜";

// The tags of a DSML block without what follows the name. The space in the names is part of them.
inline constexpr std::string_view kCallsBegin = "<｜DSML｜ calls";
inline constexpr std::string_view kCallsEnd = "</｜DSML｜ calls>";
inline constexpr std::string_view kInvokeBegin = "<｜DSML｜ invoke";
inline constexpr std::string_view kInvokeEnd = "</｜DSML｜ invoke";
inline constexpr std::string_view kParameterBegin = "<｜DSML｜ parameter";
inline constexpr std::string_view kParameterEnd = "</｜DSML｜ parameter";

}  // namespace emberkv
