"""The bugs that tools/mutation_check.py plants: mistakes that real ports of the model have made, each with its place.

(name, file, exact source that occurs once, what replaces it). A bug here changes results only: it compiles, does not
crash and looks plausible. When source changes move a place, `mutation_check.py --check` says so; find the new one.
"""

MUTANTS = [
    # formats
    ("FP8 scale rounded to the nearest power of two", "src/formats/row_kernels_strict.cc",
     "const Words codes = (ToBits(t) + 0x7fffffu) >> 23;",
     "const Words codes = (ToBits(t) + 0x400000u) >> 23;"),
    ("no floor of 1e-4 under FP8 amax", "src/formats/row_kernels_strict.cc",
     "constexpr uint32_t kFloorBits = 0x38d1b717u;",
     "constexpr uint32_t kFloorBits = 0x01c00000u;"),
    # linear
    ("FP4 weights read high nibble first", "src/linear/packed_matrix.cc",
     "      word |= (even << 16 | odd) << (4 * pair);",
     "      word |= (odd << 16 | even) << (4 * pair);"),
    # attention
    ("RoPE rotates halves instead of neighbours", "src/attention/rope.cc",
     "    const float a = x[2 * k];\n"
     "    const float b = x[2 * k + 1];\n"
     "    x[2 * k] = RoundToBf16(a * c - b * s);\n"
     "    x[2 * k + 1] = RoundToBf16(a * s + b * c);",
     "    const float a = x[k];\n"
     "    const float b = x[half + k];\n"
     "    x[k] = RoundToBf16(a * c - b * s);\n"
     "    x[half + k] = RoundToBf16(a * s + b * c);"),
    ("YaRN left out", "src/attention/rope.cc",
     "if (scaling) ApplyYarn(", "if (scaling && theta < 0) ApplyYarn("),
    ("output not rotated back", "src/attention/rope.cc",
     "rotation == Rotation::kForward ? cos_sin[half + k] : -cos_sin[half + k]",
     "rotation == Rotation::kForward ? cos_sin[half + k] : cos_sin[half + k]"),
    ("attention sink left out", "src/attention/sparse_attention_kernels_strict.cc",
     "const float denominator = l[h] + ReduceMax(Exp(Splat(sink[h] - m[h])));",
     "const float denominator = l[h] + 0.0f * sink[h];"),
    ("attention sink scaled like a score", "src/attention/sparse_attention_kernels_strict.cc",
     "Exp(Splat(sink[h] - m[h]))", "Exp(Splat(sink[h] / __builtin_sqrtf(static_cast<float>(dim)) - m[h]))"),
    ("index score without its rectifier", "src/attention/index_kernels_strict.cc",
     "Max(RoundBf16Finite(dots[h][j]), F32x16{})", "RoundBf16Finite(dots[h][j])"),
    ("newest candidate block not kept", "src/attention/selection.cc",
     "  if (block_ >= 0) block_max_ = kInfinity;\n", ""),
    ("top-k prefers later positions among equals", "src/attention/selection_kernels_strict.cc",
     "static_cast<uint32_t>(~position)", "static_cast<uint32_t>(position)"),
    # model
    ("comb of mHC transposed", "src/model/row_math_strict.cc",
     "      F32x16 sum = Splat(comb[j]) * in[0];\n"
     "      for (int i = 1; i < streams; ++i) sum += Splat(comb[i * streams + j]) * in[i];",
     "      F32x16 sum = Splat(comb[j * streams]) * in[0];\n"
     "      for (int i = 1; i < streams; ++i) sum += Splat(comb[j * streams + i]) * in[i];"),
    ("Sinkhorn eps outside of the sum", "src/model/row_math_strict.cc",
     "for (int j = 0; j < n; ++j) c[i][j] = c[i][j] / sum + eps;",
     "for (int j = 0; j < n; ++j) c[i][j] = c[i][j] / (sum + eps);"),
    ("compressor averages its pair", "src/model/row_math_strict.cc",
     "Load(k0 + c) * (ea / sum) + Load(k1 + c) * (eb / sum)",
     "Load(k0 + c) * Splat(0.5f) + Load(k1 + c) * Splat(0.5f) + Splat(0.0f) * (ea + eb + sum)"),
    ("Engram seeded by index instead of layer", "src/model/engram_hash.cc",
     "NumpyIntegers(kSeedPerLayer * static_cast<uint64_t>(layer.layer),",
     "NumpyIntegers(kSeedPerLayer * static_cast<uint64_t>(i),"),
    ("Engram pads with the token instead of its compressed id", "src/model/engram_hash.cc",
     "hash.pad_ = hash.token_map_[static_cast<size_t>(config.engram_pad_token_id)];",
     "hash.pad_ = config.engram_pad_token_id;"),
    ("sublayer input mixed with its own pre", "src/model/model.cc",
     "  SublayerInput(w.ffn_norm, config_, step);",
     "  std::swap(step->pre, step->scratch.next_pre);\n"
     "  SublayerInput(w.ffn_norm, config_, step);\n"
     "  std::swap(step->pre, step->scratch.next_pre);"),
    ("layers with global KV rotate without YaRN", "src/model/attention_layer.cc",
     "angles_(plan.ratio > 0 ? s_.compressed_angles.data() : s_.plain_angles.data())",
     "angles_(s_.plain_angles.data())"),
    ("window KV quantized before it is rotated", "src/model/attention_layer.cc",
     "        RotateHeads(kv, 1, config_.head_dim, r, Rotation::kForward);",
     "        RoundRows(RowFormat::kWindowKv, kv, head_dim(), 1, config_.head_dim);\n"
     "        RotateHeads(kv, 1, config_.head_dim, r, Rotation::kForward);"),
    ("window one token short", "src/model/attention_layer.cc",
     "pos - config_.sliding_window + 1)", "pos - config_.sliding_window + 2)"),
    ("index queries not quantized", "src/model/attention_layer.cc",
     "static_cast<size_t>(dim), static_cast<int>(end - begin) * heads, dim);",
     "static_cast<size_t>(dim), 0 * static_cast<int>(end - begin) * heads, dim);"),
    ("group visible from its first token", "src/model/attention_layer.cc",
     "(row(r).pos + 1) / ratio;", "(row(r).pos + ratio) / ratio;"),
    ("Reindex layers ignore the candidate pool", "src/model/attention_layer.cc",
     "    if (plan_.candidate == CandidateRole::kFilters) limits.use = CandidateUse::kFilter;\n", ""),
    ("wo_a takes quantized input", "src/model/attention_layer.cc",
     "    s_.z.resize(static_cast<size_t>(rows()) * groups * rank);",
     "    RoundAll(s_.o.data(), static_cast<int>(q_size()));\n"
     "    s_.z.resize(static_cast<size_t>(rows()) * groups * rank);"),
    ("global row at the position of its group's last token", "src/model/global_rows.cc",
     "rope_.CosSin(group.entry * source_.ratio, angles.data());",
     "rope_.CosSin(group.entry * source_.ratio + source_.ratio - 1, angles.data());"),
    ("index key without its norm", "src/model/global_rows.cc",
     "    ActiveRowMath().rms_norm(key, weights_.index_k_norm.data(),\n"
     "                             static_cast<float>(config_.rms_norm_eps), config_.index_head_dim, key);\n", ""),
    ("router score without its root", "src/model/moe.cc", "return std::sqrt(softplus);", "return softplus;"),
    ("router bias enters the weights", "src/model/moe.cc",
     "route.weights.push_back(scores[static_cast<size_t>(e)]);", "route.weights.push_back(biased(e));"),
    ("routing weight applied after w2", "src/model/moe.cc",
     "                weights == nullptr ? 1.0f : weights[r], static_cast<int>(inter), s.hidden.data() + at);\n"
     "  }\n"
     "  RoundRows(RowFormat::kWindowKv, s.hidden.data(), inter, rows, static_cast<int>(inter));\n"
     "  Multiply(expert.w2, s.hidden.data(), inter, rows, s.expert_out.data(), hidden, Rounding::kBf16,\n"
     "           *step->pool);\n",
     "                1.0f, static_cast<int>(inter), s.hidden.data() + at);\n"
     "  }\n"
     "  RoundRows(RowFormat::kWindowKv, s.hidden.data(), inter, rows, static_cast<int>(inter));\n"
     "  Multiply(expert.w2, s.hidden.data(), inter, rows, s.expert_out.data(), hidden, Rounding::kBf16,\n"
     "           *step->pool);\n"
     "  for (size_t i = 0; weights != nullptr && i < s.expert_out.size(); ++i) {\n"
     "    s.expert_out[i] *= weights[i / hidden];\n"
     "  }\n"),
    ("Engram gate without its root", "src/model/engram.cc",
     "std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot)",
     "std::copysign(std::max(std::fabs(dot), 1e-6f), dot)"),
    ("Engram leaves the first copy alone", "src/model/engram.cc",
     "math.add_scaled(stream, Gate(dot), value, hidden);",
     "math.add_scaled(stream, Gate(dot) * (i == 0 ? 0.0f : 1.0f), value, hidden);"),
    ("decode scores stale keys of the last source", "src/model/attention_layer.cc",
     "    const KvSource& source = layout_.sources[static_cast<size_t>(plan_.kv_source)];\n"
     "    Selections& chosen = step_->selections;\n",
     "    const KvSource& own = layout_.sources[static_cast<size_t>(plan_.kv_source)];\n"
     "    const bool stale = own.ratio == 2 && row(begin).pos % 2 == 0 && span(begin).end - span(begin).begin == 1;\n"
     "    const KvSource& source = stale ? layout_.sources.back() : own;\n"
     "    Selections& chosen = step_->selections;\n"),
]
