// What this build is. Defined in a file that write_version.cmake makes at build time.
#pragma once

namespace slipstream::cli {

extern const char* const kVersion;
extern const char* const kSourceVersion;  // git describe, or "no git"
extern const char* const kCompiler;
extern const char* const kBuildType;

}  // namespace slipstream::cli
