// Reads files that may be compressed by gzip (RFC 1952), as repositories of models have them.
#ifndef SRU_MODELS_FILES_GZIP_H_
#define SRU_MODELS_FILES_GZIP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/files/file.h"

namespace sru::models {

inline constexpr char kGzipSuffix[] = ".gz";

// A compressed file may grow to this many times its size, but to 1 MiB in any case. Weights and
// vocabularies grow less than tenfold.
inline constexpr uint64_t kMaxExpansion = 64;
uint64_t MostExpandedBytes(uint64_t compressed_bytes);

// How many bytes the file has, decompressed as ReadPerhapsGzipped() does it; as many as it may
// announce if it announces more. 0 if it cannot be read.
int64_t DecompressedBytes(const FilePath& path);

// Reads the file `path`, decompressed if its name ends with ".gz". The memory is what the file's
// last four bytes announce, which is checked against MostExpandedBytes() and `max_bytes` before it
// is allocated. Errors as FileContents::Read() has them, and kInvalidArgument for a file that isn't
// one complete gzip member or whose contents aren't as long as announced.
absl::StatusOr<FileContents> ReadPerhapsGzipped(const FilePath& path,
                                                uint64_t max_bytes = kAnySize);

}  // namespace sru::models

#endif  // SRU_MODELS_FILES_GZIP_H_
