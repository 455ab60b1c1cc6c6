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
    ("FP4 weights read high nibble first", "src/linear/panel_kernels.cc",
     "        Store(E2m1Values(pair & 15u) * scale, out + 32 * k + half);\n"
     "        Store(E2m1Values(pair >> 4) * scale, out + 32 * (k + 1) + half);",
     "        Store(E2m1Values(pair >> 4) * scale, out + 32 * k + half);\n"
     "        Store(E2m1Values(pair & 15u) * scale, out + 32 * (k + 1) + half);"),
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
    ("attention sink left out", "src/attention/tile_kernels_strict.cc",
     "const float denominator = l[h] + ReduceMax(Exp(Splat(sink[h] - m[h])));",
     "const float denominator = l[h] + 0.0f * sink[h];"),
    ("attention sink scaled like a score", "src/attention/tile_kernels_strict.cc",
     "Exp(Splat(sink[h] - m[h]))", "Exp(Splat(sink[h] / __builtin_sqrtf(static_cast<float>(dim)) - m[h]))"),
    ("index score without its rectifier", "src/attention/tile_kernels.cc",
     "Max(RoundBf16(acc[h][j]), F32x16{})", "RoundBf16(acc[h][j])"),
    ("newest candidate block not kept", "src/attention/selection.cc",
     "if (block_ >= 0) blocks_.Push(kInfinity, block_);", "if (block_ >= 0) blocks_.Push(block_max_, block_);"),
    ("top-k prefers later positions among equals", "src/attention/selection.cc",
     "a.score == b.score && a.position < b.position", "a.score == b.score && a.position > b.position"),
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
]
