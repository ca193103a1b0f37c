#include "remat/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/json.h"

namespace remat::io {
namespace {

using nlohmann::json;

constexpr std::string_view kOperation = "safetensors";
constexpr std::string_view kMetadataKey = "__metadata__";

// What libtorch's element-wise operations can walk over.
constexpr size_t kMaxDimensions = 64;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 10> kDtypes{
    {{"F64", at::kDouble},
     {"F32", at::kFloat},
     {"F16", at::kHalf},
     {"BF16", at::kBFloat16},
     {"I64", at::kLong},
     {"I32", at::kInt},
     {"I16", at::kShort},
     {"I8", at::kChar},
     {"U8", at::kByte},
     {"BOOL", at::kBool}}};

constexpr std::string_view kKnownDtypes =
    "F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL";

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// One tensor's description, with the file and the tensor in its errors.
class EntryParser {
 public:
  EntryParser(const std::string& source, const std::string& name,
              const json& value, uint64_t data_bytes)
      : source_(source), name_(name), value_(value), data_bytes_(data_bytes) {}

  SafetensorsEntry parse() const {
    if (!value_.is_object()) {
      refuse("is described by ", value_.type_name(), ", not by an object");
    }
    SafetensorsEntry entry;
    entry.name = name_;
    entry.dtype = parse_dtype();
    const uint64_t bytes = parse_shape(entry);
    parse_offsets(entry);
    if (entry.end - entry.begin != bytes) {
      refuse("has ", entry.end - entry.begin, " bytes in data_offsets, but ",
             field("dtype").get<std::string>(), " of shape ",
             dump(field("shape")), " takes ", bytes);
    }
    return entry;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_usage(kOperation, source_, ": tensor \"", name_, "\" ", parts...);
  }

  const json& field(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) {
      refuse("has no ", key);
    }
    return *found;
  }

  at::ScalarType parse_dtype() const {
    const json& value = field("dtype");
    const auto dtype = value.is_string()
                           ? safetensors_dtype(value.get<std::string>())
                           : std::nullopt;
    if (!dtype.has_value()) {
      refuse("has dtype ", dump(value), "; known are ", kKnownDtypes);
    }
    return *dtype;
  }

  uint64_t whole(const json& value, const char* key) const {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      refuse("has ", dump(value), " in ", key,
             "; it must be a whole number from 0 to 2^63 - 1");
    }
    return value.get<uint64_t>();
  }

  // Returns the bytes that dtype and shape take.
  uint64_t parse_shape(SafetensorsEntry& entry) const {
    const json& shape = field("shape");
    if (!shape.is_array()) {
      refuse("has shape ", dump(shape), "; it must be an array");
    }
    if (shape.size() > kMaxDimensions) {
      refuse("has ", shape.size(), " dimensions; at most ", kMaxDimensions,
             " are possible");
    }
    // Without the zeros: strides must not overflow in an empty tensor either.
    uint64_t bytes = c10::elementSize(entry.dtype);
    bool empty = false;
    for (const json& element : shape) {
      const uint64_t size = whole(element, "shape");
      entry.shape.push_back(static_cast<int64_t>(size));
      empty = empty || size == 0;
      if (size > 0 && bytes > static_cast<uint64_t>(INT64_MAX) / size) {
        refuse("has shape ", dump(shape), ", more than 2^63 bytes");
      }
      bytes *= std::max<uint64_t>(size, 1);
    }
    return empty ? 0 : bytes;
  }

  void parse_offsets(SafetensorsEntry& entry) const {
    const json& offsets = field("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) {
      refuse("has data_offsets ", dump(offsets), "; they must be [begin, end]");
    }
    entry.begin = whole(offsets[0], "data_offsets");
    entry.end = whole(offsets[1], "data_offsets");
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      refuse("has data_offsets ", dump(offsets), " outside of the ",
             data_bytes_, " bytes of data: the file is cut off or broken");
    }
  }

  const std::string& source_;
  const std::string& name_;
  const json& value_;
  uint64_t data_bytes_;
};

// nlohmann's objects are sorted; the order of the text comes from a second
// walk that keeps no values.
std::vector<std::string> keys_in_order(std::string_view text) {
  std::vector<std::string> keys;
  const auto callback = [&](int depth, json::parse_event_t event,
                            json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key) {
      keys.push_back(parsed.get<std::string>());
    }
    return depth == 0;
  };
  [[maybe_unused]] const json nothing =
      json::parse(text.begin(), text.end(), callback);
  return keys;
}

void parse_metadata(const std::string& source, const json& value,
                    std::map<std::string, std::string>& metadata) {
  if (value.is_null()) {
    return;
  }
  if (!value.is_object()) {
    fail_usage(kOperation, source, ": ", kMetadataKey, " is ",
               value.type_name(), "; it must be an object of strings");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      fail_usage(kOperation, source, ": ", kMetadataKey, " has \"", key,
                 "\": ", dump(text), "; it must be a string");
    }
    metadata.emplace(key, text.get<std::string>());
  }
}

// The tensors lie side by side and fill the data.
void check_coverage(const std::string& source,
                    const std::vector<SafetensorsEntry>& entries,
                    uint64_t data_bytes) {
  std::vector<const SafetensorsEntry*> sorted;
  sorted.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    sorted.push_back(&entry);
  }
  // Empty tensors before the one that starts at the same byte.
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t covered = 0;
  const std::string* last = nullptr;
  for (const SafetensorsEntry* entry : sorted) {
    if (entry->begin < covered) {
      fail_usage(kOperation, source, ": tensor \"", entry->name,
                 "\" starts at byte ", entry->begin, ", inside of \"", *last,
                 "\", which ends at ", covered);
    }
    if (entry->begin > covered) {
      fail_usage(kOperation, source, ": tensor \"", entry->name,
                 "\" starts at byte ", entry->begin, ", but bytes from ",
                 covered, " on belong to no tensor");
    }
    covered = entry->end;
    last = &entry->name;
  }
  if (covered != data_bytes) {
    fail_usage(kOperation, source, ": the tensors end at byte ", covered,
               " of the data, which has ", data_bytes,
               ": something was appended to the file");
  }
}

}  // namespace

std::string_view safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) {
      return name;
    }
  }
  return {};
}

std::optional<at::ScalarType> safetensors_dtype(std::string_view name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (known == name) {
      return dtype;
    }
  }
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(const std::string& source,
                                           std::string_view text,
                                           uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') {
    fail_usage(kOperation, source,
               ": the header does not start with '{': not a safetensors file");
  }
  const json value = parse_json(kOperation, source + ": header", text);
  SafetensorsHeader header;
  for (const std::string& key : keys_in_order(text)) {
    if (key == kMetadataKey) {
      parse_metadata(source, value[key], header.metadata);
    } else {
      header.entries.push_back(
          EntryParser(source, key, value[key], data_bytes).parse());
    }
  }
  check_coverage(source, header.entries, data_bytes);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto add = [&](const std::string& key, const json& value) {
    text += text.size() > 1 ? "," : "";
    text += json(key).dump() + ":" + value.dump();
  };
  if (!header.metadata.empty()) {
    add(std::string(kMetadataKey), header.metadata);
  }
  for (const SafetensorsEntry& entry : header.entries) {
    add(entry.name, {{"dtype", safetensors_dtype_name(entry.dtype)},
                     {"shape", entry.shape},
                     {"data_offsets", {entry.begin, entry.end}}});
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace remat::io
