#include "remat/io/safetensors.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/suggest.h"
#include "remat/io/safetensors_header.h"

namespace remat::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

constexpr std::string_view kOperation = "safetensors";
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kChunk = size_t{1} << 30;

// An open file of a known size. Reads instead of mapping: pages of a mapping
// count as resident memory, and a file that shrinks would kill the process.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : name_(path.string()),
        descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) {
      fail_usage(kOperation, "cannot read ", name_, ": ", std::strerror(errno));
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      fail_usage(kOperation, "cannot read ", name_, ": ",
                 S_ISDIR(status.st_mode) ? "it is a directory"
                                         : "it is not a regular file");
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }

  void read(void* data, uint64_t bytes, uint64_t offset) const {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got =
          ::pread(descriptor_, next, std::min<uint64_t>(bytes, kChunk),
                  static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        fail(kOperation, "cannot read ", name_, ": ",
             got == 0 ? "it was cut short while being read"
                      : std::strerror(errno));
      }
      next += got;
      bytes -= static_cast<uint64_t>(got);
      offset += static_cast<uint64_t>(got);
    }
  }

 private:
  std::string name_;
  int descriptor_;
  uint64_t size_ = 0;
};

uint64_t read_header_length(const InputFile& file) {
  if (file.size() < kLengthBytes) {
    fail_usage(kOperation, file.name(), ": the file has ", file.size(),
               " bytes, fewer than the 8 of the header length: not a "
               "safetensors file");
  }
  uint64_t length = 0;
  file.read(&length, sizeof(length), 0);
  if (length > kMaxSafetensorsHeader) {
    fail_usage(kOperation, file.name(), ": the header length is ", length,
               ", more than ", kMaxSafetensorsHeader,
               ": not a safetensors file");
  }
  if (length > file.size() - kLengthBytes) {
    fail_usage(kOperation, file.name(), ": the header length is ", length,
               ", but only ", file.size() - kLengthBytes,
               " bytes follow: the file is cut off");
  }
  return length;
}

// Any other byte in a bool is undefined behaviour for whoever reads it.
void check_bools(const InputFile& file, const std::string& name,
                 const at::Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  const auto* end = bytes + tensor.nbytes();
  const auto* found = std::find_if(bytes, end, [](auto b) { return b > 1; });
  if (found != end) {
    fail_usage(kOperation, file.name(), ": tensor \"", name, "\" has byte ",
               int{*found}, " at element ", found - bytes,
               "; a BOOL is 0 or 1");
  }
}

void check_writable(const std::string& path, const std::string& name,
                    const at::Tensor& tensor) {
  const auto refuse = [&](const auto&... parts) {
    fail_usage(kOperation, "cannot write ", path, ": tensor \"", name, "\" ",
               parts...);
  };
  if (name == "__metadata__") {
    refuse("has the one name that the format keeps for itself");
  }
  if (!tensor.defined()) {
    refuse("is undefined");
  }
  if (tensor.layout() != at::kStrided) {
    refuse("is sparse; make it dense first");
  }
  if (safetensors_dtype_name(tensor.scalar_type()).empty()) {
    refuse("has dtype ", c10::toString(tensor.scalar_type()),
           ", which the format cannot hold; convert it first");
  }
}

// Positions of the tensors by falling element size: each then starts at a
// multiple of its element size, which readers that map the file need.
std::vector<size_t> data_order(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].second.element_size() > tensors[b].second.element_size();
  });
  return order;
}

std::string make_header(
    const std::string& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::vector<size_t>& order,
    const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [name, tensor] : tensors) {
    header.entries.push_back(
        {name, tensor.scalar_type(), tensor.sizes().vec(), 0, 0});
  }
  uint64_t next = 0;
  for (const size_t i : order) {
    header.entries[i].begin = next;
    next += tensors[i].second.numel() * tensors[i].second.element_size();
    header.entries[i].end = next;
  }
  std::string text;
  try {
    text = format_safetensors_header(header);
  } catch (const nlohmann::json::exception& error) {
    fail_usage(kOperation, "cannot write ", path,
               ": a name or metadata text is not UTF-8: ", error.what());
  }
  if (text.size() > kMaxSafetensorsHeader) {
    fail_usage(kOperation, "cannot write ", path, ": the header would have ",
               text.size(), " bytes; readers refuse more than ",
               kMaxSafetensorsHeader);
  }
  return text;
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {
    const uint64_t length = read_header_length(file);
    data_start = kLengthBytes + length;
    std::string text(length, '\0');
    file.read(text.data(), length, kLengthBytes);
    SafetensorsHeader header =
        parse_safetensors_header(file.name(), text, file.size() - data_start);
    metadata = std::move(header.metadata);
    entries = std::move(header.entries);
    for (size_t i = 0; i < entries.size(); ++i) {
      names.push_back(entries[i].name);
      positions.emplace(entries[i].name, i);
    }
  }

  InputFile file;
  uint64_t data_start = 0;
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string> names;
  std::unordered_map<std::string, size_t> positions;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : impl_(std::make_unique<Impl>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept =
    default;

const std::vector<std::string>& SafetensorsFile::names() const {
  return impl_->names;
}

bool SafetensorsFile::has(const std::string& name) const {
  return impl_->positions.count(name) > 0;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const InputFile& file = impl_->file;
  const auto found = impl_->positions.find(name);
  if (found == impl_->positions.end()) {
    const std::string similar = nearest(name, impl_->names);
    fail_usage(kOperation, file.name(), ": there is no tensor \"", name, "\"",
               similar.empty() ? "" : str("; there is \"", similar, "\""));
  }
  const SafetensorsEntry& entry = impl_->entries[found->second];
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  file.read(tensor.data_ptr(), entry.end - entry.begin,
            impl_->data_start + entry.begin);
  if (entry.dtype == at::kBool) {
    check_bools(file, name, tensor);
  }
  return tensor;
}

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    check_writable(path.string(), name, tensor);
    if (!names.insert(name).second) {
      fail_usage(kOperation, "cannot write ", path.string(), ": tensor \"",
                 name, "\" is given twice");
    }
  }
  const std::vector<size_t> order = data_order(tensors);
  const std::string header =
      make_header(path.string(), tensors, order, metadata);
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header);
  for (const size_t i : order) {
    const at::Tensor dense =
        tensors[i].second.detach().resolve_neg().to(at::kCPU).contiguous();
    file.write(dense.data_ptr(), dense.nbytes());
  }
  file.commit();
}

}  // namespace remat::io
