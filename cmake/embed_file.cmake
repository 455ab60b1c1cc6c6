# Writes a C++ source that holds a file's bytes: cmake -DINPUT=... -DOUTPUT=... -DNAME=kSomething -P embed_file.cmake
# It defines emberkv::NAME, a std::string_view.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <string_view>

namespace emberkv {

namespace {
constexpr char kBytes[] = {
${bytes}};
}  // namespace

extern const std::string_view ${NAME};
const std::string_view ${NAME}(kBytes, sizeof kBytes);

}  // namespace emberkv
")
