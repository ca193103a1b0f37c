#include <cmath>
#include <nlohmann/json.hpp>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/estimate/device.h"
#include "remat/plan/json_fields.h"

namespace remat::estimate {
namespace {

using plan::Fields;

constexpr const char* kFormat = "remat-device";

// More than any machine has; sums and products of such numbers stay finite.
constexpr int64_t kMaxMemory = int64_t{1} << 50;
constexpr double kMaxRate = 1e21;

double rate(const Fields& fields, std::string_view name) {
  const double value = fields.number(name, 0);
  if (!(value >= 0 && value <= kMaxRate)) {
    fields.refuse(name, "a rate is a number per second, at least 0");
  }
  return value;
}

double required_rate(const Fields& fields, std::string_view name) {
  const double value = fields.number(name);
  if (!(value > 0 && value <= kMaxRate)) {
    fields.refuse(name, "a rate is a number per second, above 0");
  }
  return value;
}

void read_share(const Fields& fields, std::string_view name, double& share) {
  share = fields.number(name, share);
  if (!(share > 0 && share <= 1)) {
    fields.refuse(name, "it is a share of the peak, above 0 and at most 1");
  }
}

void read_flops(const std::string& source, const nlohmann::json& value,
                Device& device) {
  std::vector<std::string> names;
  for (const Dtype dtype : kDtypes) {
    names.emplace_back(name_of(dtype));
  }
  const Fields rates(source + ": flops_per_second", value, names);
  double best = 0;
  for (const Dtype dtype : kDtypes) {
    device.flops_per_second[static_cast<size_t>(dtype)] =
        rate(rates, name_of(dtype));
    best = std::max(best, device.peak_flops(dtype));
  }
  if (best == 0) {
    fail_usage("plan", source,
               ": flops_per_second has no rate above 0; give that of float32, "
               "bfloat16 or float16");
  }
}

}  // namespace

std::string to_json(const Device& device) {
  nlohmann::ordered_json object;
  object["format"] = kFormat;
  object["version"] = 1;
  object["name"] = device.name;
  object["source"] = device.source;
  object["memory_bytes"] = device.memory_bytes;
  object["memory_bytes_per_second"] = device.memory_bytes_per_second;
  for (const Dtype dtype : kDtypes) {
    object["flops_per_second"][std::string(name_of(dtype))] =
        device.peak_flops(dtype);
  }
  object["host_link_bytes_per_second"] = device.host_link_bytes_per_second;
  object["disk_bytes_per_second"] = device.disk_bytes_per_second;
  object["matrix_efficiency"] = device.matrix_efficiency;
  object["memory_efficiency"] = device.memory_efficiency;
  object["link_efficiency"] = device.link_efficiency;
  object["is_cpu"] = device.is_cpu;
  return object.dump(2) + "\n";
}

Device device_from_json(std::string_view text, std::string_view source) {
  const nlohmann::json value = parse_json("plan", source, text);
  const std::string name(source);
  const Fields fields(
      name, value,
      {"format", "version", "name", "source", "memory_bytes",
       "memory_bytes_per_second", "flops_per_second",
       "host_link_bytes_per_second", "disk_bytes_per_second",
       "matrix_efficiency", "memory_efficiency", "link_efficiency", "is_cpu"});
  plan::check_format(fields, kFormat);
  Device device;
  device.name = fields.string("name");
  device.source = fields.string("source", name);
  device.memory_bytes = fields.integer("memory_bytes");
  if (device.memory_bytes < 1 || device.memory_bytes > kMaxMemory) {
    fields.refuse("memory_bytes", "it must be from 1 to 2^50");
  }
  device.memory_bytes_per_second =
      required_rate(fields, "memory_bytes_per_second");
  if (!fields.has("flops_per_second")) {
    fields.refuse("flops_per_second", "it is required");
  }
  read_flops(name, value["flops_per_second"], device);
  device.host_link_bytes_per_second =
      rate(fields, "host_link_bytes_per_second");
  device.disk_bytes_per_second = rate(fields, "disk_bytes_per_second");
  read_share(fields, "matrix_efficiency", device.matrix_efficiency);
  read_share(fields, "memory_efficiency", device.memory_efficiency);
  read_share(fields, "link_efficiency", device.link_efficiency);
  device.is_cpu = fields.boolean("is_cpu", false);
  return device;
}

Device read_device(const std::filesystem::path& path) {
  return device_from_json(read_file(path), path.string());
}

}  // namespace remat::estimate
