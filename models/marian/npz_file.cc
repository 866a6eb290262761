// .npz: a ZIP archive with an .npy file for each array, stored or deflated. An .npy file is a magic
// number, its version, the length of a header, the header, which is a Python dictionary in a fixed
// form, and the values.
#include <zip.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "models/files/gzip.h"
#include "models/files/json.h"
#include "models/marian/tensor_file.h"

namespace sru::models {
namespace {

constexpr char kNpySuffix[] = ".npy";
constexpr char kNpyMagic[] = "\x93NUMPY";
constexpr size_t kNpyMagicBytes = 6;
constexpr size_t kMaxNpyHeader = 4096;

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using ZipEntry = std::unique_ptr<zip_file_t, CloseEntry>;

// The value of a key of the header, up to `end`; empty if there is none.
absl::string_view HeaderValue(absl::string_view header, absl::string_view key, char end) {
  const size_t begin = header.find(key);
  if (begin == absl::string_view::npos) return {};
  header.remove_prefix(begin + key.size());
  return header.substr(0, header.find(end));
}

class NpzFile final : public TensorFile {
 public:
  absl::Status Read(size_t index, char* to) override {
    const std::string& name = tensors_[index].name;
    const ZipEntry entry(zip_fopen_index(archive_.get(), index, 0));
    if (entry == nullptr) return TensorError(name, zip_strerror(archive_.get()));
    std::string header(header_bytes_[index], '\0');
    SRU_RETURN_UNLESS_OK(ReadEntry(name, entry, header.size(), header.data()));
    SRU_RETURN_UNLESS_OK(ReadEntry(name, entry, tensors_[index].bytes(), to));
    // The checksum is compared when the end is read.
    char rest;
    if (zip_fread(entry.get(), &rest, 1) == 0) return absl::OkStatus();
    return TensorError(name, "the checksum or the length is wrong; the file is damaged");
  }

 private:
  absl::Status ReadHead() override {
    zip_error_t error;
    zip_error_init(&error);
    const absl::Status opened = OpenArchive(&error);
    zip_error_fini(&error);
    SRU_RETURN_UNLESS_OK(opened);
    const uint64_t most = MostExpandedBytes(file_bytes());
    uint64_t total = 0;
    const zip_int64_t entries = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < entries; ++i) {
      zip_stat_t info;
      if (zip_stat_index(archive_.get(), i, 0, &info) != 0) {
        return InvalidArgument(source_, ": ", zip_strerror(archive_.get()));
      }
      constexpr zip_uint64_t kWanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                       ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
      if ((info.valid & kWanted) != kWanted || !absl::EndsWith(info.name, kNpySuffix)) {
        return InvalidArgument(source_, ": entry ", i, ": expected an array, NAME.npy");
      }
      MarianTensor tensor;
      tensor.name = std::string(absl::StripSuffix(info.name, kNpySuffix));
      const bool stored = info.comp_method == ZIP_CM_STORE;
      if ((!stored && info.comp_method != ZIP_CM_DEFLATE) ||
          info.encryption_method != ZIP_EM_NONE) {
        return TensorError(tensor.name, "expected it stored or deflated, and not encrypted");
      }
      if (info.comp_size > file_bytes() || (stored && info.size != info.comp_size) ||
          info.size > most - total) {
        return TensorError(tensor.name,
                           absl::StrCat("expected at most ", most - total, " bytes in a file of ",
                                        file_bytes(), ", found ", info.size));
      }
      total += info.size;
      SRU_RETURN_UNLESS_OK(ReadHeader(i, info.size, &tensor));
      tensors_.push_back(std::move(tensor));
    }
    return absl::OkStatus();
  }

  absl::Status OpenArchive(zip_error_t* error) {
    zip_source_t* source = nullptr;
    if (!file_.has_value()) {
      source = zip_source_buffer_create(contents_.bytes().data(), file_bytes(), 0, error);
    } else if (std::FILE* const stream = file_->OpenStream(); stream != nullptr) {
      source = zip_source_filep_create(stream, 0, -1, error);
      if (source == nullptr) std::fclose(stream);
    } else {
      return absl::UnavailableError(absl::StrCat(source_, ": cannot be opened again"));
    }
    if (source != nullptr) archive_.reset(zip_open_from_source(source, ZIP_RDONLY, error));
    if (archive_ != nullptr) return absl::OkStatus();
    if (source != nullptr) zip_source_free(source);
    return InvalidArgument(source_,
                           ": not an .npz file, or a damaged one: ", zip_error_strerror(error));
  }

  absl::Status ReadEntry(const std::string& name, const ZipEntry& entry, uint64_t size, char* to) {
    while (size > 0) {
      const zip_int64_t count = zip_fread(entry.get(), to, size);
      if (count <= 0) {
        return TensorError(
            name, "cannot be read as long as it is announced; the file is damaged or truncated");
      }
      to += count;
      size -= static_cast<uint64_t>(count);
    }
    return absl::OkStatus();
  }

  // Sets type, shape and elements.
  absl::Status ReadHeader(zip_uint64_t index, uint64_t size, MarianTensor* tensor) {
    const ZipEntry entry(zip_fopen_index(archive_.get(), index, 0));
    if (entry == nullptr) return TensorError(tensor->name, zip_strerror(archive_.get()));
    // The magic number, a version of two bytes, and a length of two bytes, or of four from version
    // 2 on.
    unsigned char start[kNpyMagicBytes + 6] = {};
    char* const to = reinterpret_cast<char*>(start);
    SRU_RETURN_UNLESS_OK(ReadEntry(tensor->name, entry, kNpyMagicBytes + 4, to));
    size_t start_bytes = kNpyMagicBytes + 4;
    if (std::string_view(to, kNpyMagicBytes) != kNpyMagic) {
      return TensorError(tensor->name, "expected an .npy file");
    }
    if (start[kNpyMagicBytes] >= 2) {
      SRU_RETURN_UNLESS_OK(ReadEntry(tensor->name, entry, 2, to + start_bytes));
      start_bytes += 2;
    }
    uint64_t header_bytes = 0;
    for (size_t i = start_bytes; i-- > kNpyMagicBytes + 2;)
      header_bytes = header_bytes << 8 | start[i];
    if (header_bytes > kMaxNpyHeader || start_bytes + header_bytes > size) {
      return TensorError(tensor->name, absl::StrCat("expected a header of at most ", kMaxNpyHeader,
                                                    " bytes, found the length ", header_bytes));
    }
    std::string header(header_bytes, '\0');
    SRU_RETURN_UNLESS_OK(ReadEntry(tensor->name, entry, header_bytes, header.data()));
    header_bytes_.push_back(start_bytes + header_bytes);
    return ParseHeader(header, size - start_bytes - header_bytes, tensor);
  }

  absl::Status ParseHeader(const std::string& header, uint64_t data_bytes,
                           MarianTensor* tensor) const {
    const absl::string_view type = HeaderValue(header, "'descr': '", '\'');
    const absl::string_view order = HeaderValue(header, "'fortran_order': ", ',');
    if (type == "<f4") {
      tensor->type = MarianTensor::Type::kFloat32;
    } else if (type.size() == 3 && type[2] == '1') {
      tensor->type = MarianTensor::Type::kBytes;
    } else {
      return TensorError(tensor->name,
                         absl::StrCat("expected float32 (<f4) or bytes, found the type ",
                                      Quoted({type.data(), type.size()})));
    }
    if (order != "False") return TensorError(tensor->name, "expected fortran_order False");
    const bool has_shape = absl::StrContains(header, "'shape': (");
    for (const absl::string_view part :
         absl::StrSplit(HeaderValue(header, "'shape': (", ')'), ',', absl::SkipWhitespace())) {
      int64_t size = 0;
      if (!absl::SimpleAtoi(part, &size)) {
        return TensorError(tensor->name, absl::StrCat("shape: expected integers, found ",
                                                      Quoted({part.data(), part.size()})));
      }
      tensor->shape.push_back(size);
    }
    SRU_RETURN_UNLESS_OK(SetElements(data_bytes, tensor));
    if (has_shape && tensor->bytes() == data_bytes) return absl::OkStatus();
    return TensorError(tensor->name, absl::StrCat("expected a shape of ", data_bytes,
                                                  " bytes, found ", tensor->bytes()));
  }

  std::unique_ptr<zip_t, CloseArchive> archive_;
  std::vector<uint64_t> header_bytes_;  // [tensor]: before its values
};

}  // namespace

std::unique_ptr<TensorFile> NewNpzFile() { return std::make_unique<NpzFile>(); }

}  // namespace sru::models
