#include <algorithm>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/suggest.h"
#include "remat/plan/chain.h"
#include "remat/plan/json_fields.h"

namespace remat::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "remat-chain";

// What is zero or absent is not written; sizes and times of a stage always are.
void put(Json& object, const char* name, int64_t value, int64_t usual = 0) {
  if (value != usual) {
    object[name] = value;
  }
}

void put(Json& object, const char* name, double value) {
  if (value != 0) {
    object[name] = value;
  }
}

Json option_to_json(const Chain& chain, const StageOption& option) {
  Json object;
  object["name"] = option.name;
  object["saved_bytes"] = option.saved_bytes;
  if (option.holds_output) {
    object["holds_output"] = true;
  }
  put(object, "extra_forward_seconds", option.extra_forward_seconds);
  put(object, "extra_backward_seconds", option.extra_backward_seconds);
  put(object, "forward_workspace_bytes", option.forward_workspace_bytes);
  put(object, "backward_workspace_bytes", option.backward_workspace_bytes);
  if (option.store >= 0) {
    object["store"] = chain.stores[option.store].name;
    put(object, "stored_bytes", option.stored_bytes);
  }
  return object;
}

Json stage_to_json(const Chain& chain, const Stage& stage) {
  Json object;
  object["name"] = stage.name;
  object["forward_seconds"] = stage.forward_seconds;
  object["backward_seconds"] = stage.backward_seconds;
  object["output_bytes"] = stage.output_bytes;
  object["saved_bytes"] = stage.saved_bytes;
  put(object, "forward_workspace_bytes", stage.forward_workspace_bytes);
  put(object, "backward_workspace_bytes", stage.backward_workspace_bytes);
  for (const StageOption& option : stage.options) {
    object["options"].push_back(option_to_json(chain, option));
  }
  return object;
}

Json store_to_json(const Store& store) {
  Json object;
  object["name"] = store.name;
  put(object, "capacity_bytes", store.capacity_bytes, kUnlimited);
  put(object, "capacity_values", store.capacity_values, kUnlimited);
  put(object, "write_seconds", store.write_seconds);
  put(object, "read_seconds", store.read_seconds);
  put(object, "write_bytes_per_second", store.write_bytes_per_second);
  put(object, "read_bytes_per_second", store.read_bytes_per_second);
  return object;
}

Store store_from_json(const std::string& source, const nlohmann::json& value) {
  const Fields fields(
      source, value,
      {"name", "capacity_bytes", "capacity_values", "write_seconds",
       "read_seconds", "write_bytes_per_second", "read_bytes_per_second"});
  Store store;
  store.name = fields.string("name");
  store.capacity_bytes = fields.integer("capacity_bytes", kUnlimited);
  store.capacity_values = fields.integer("capacity_values", kUnlimited);
  store.write_seconds = fields.number("write_seconds", 0);
  store.read_seconds = fields.number("read_seconds", 0);
  store.write_bytes_per_second = fields.number("write_bytes_per_second", 0);
  store.read_bytes_per_second = fields.number("read_bytes_per_second", 0);
  return store;
}

int store_index(const Chain& chain, const Fields& fields) {
  const std::string name = fields.string("store");
  std::vector<std::string> names;
  for (const Store& store : chain.stores) {
    names.push_back(store.name);
  }
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    fields.refuse("store", str("the chain has no store of that name",
                               did_you_mean(name, names)));
  }
  return static_cast<int>(found - names.begin());
}

StageOption option_from_json(const Chain& chain, const std::string& source,
                             const nlohmann::json& value) {
  const Fields fields(
      source, value,
      {"name", "saved_bytes", "holds_output", "extra_forward_seconds",
       "extra_backward_seconds", "forward_workspace_bytes",
       "backward_workspace_bytes", "store", "stored_bytes"});
  StageOption option;
  option.name = fields.string("name");
  option.saved_bytes = fields.integer("saved_bytes");
  option.holds_output = fields.boolean("holds_output", false);
  option.extra_forward_seconds = fields.number("extra_forward_seconds", 0);
  option.extra_backward_seconds = fields.number("extra_backward_seconds", 0);
  option.forward_workspace_bytes = fields.integer("forward_workspace_bytes", 0);
  option.backward_workspace_bytes =
      fields.integer("backward_workspace_bytes", 0);
  if (fields.has("store")) {
    option.store = store_index(chain, fields);
  }
  option.stored_bytes = fields.integer("stored_bytes", 0);
  return option;
}

Stage stage_from_json(const Chain& chain, const std::string& source,
                      const nlohmann::json& value) {
  const Fields fields(source, value,
                      {"name", "forward_seconds", "backward_seconds",
                       "output_bytes", "saved_bytes", "forward_workspace_bytes",
                       "backward_workspace_bytes", "options"});
  Stage stage;
  stage.name = fields.string("name", "");
  stage.forward_seconds = fields.number("forward_seconds");
  stage.backward_seconds = fields.number("backward_seconds");
  stage.output_bytes = fields.integer("output_bytes");
  stage.saved_bytes = fields.integer("saved_bytes");
  stage.forward_workspace_bytes = fields.integer("forward_workspace_bytes", 0);
  stage.backward_workspace_bytes =
      fields.integer("backward_workspace_bytes", 0);
  for (const nlohmann::json* option : fields.array("options")) {
    stage.options.push_back(option_from_json(
        chain, str(source, ": option ", stage.options.size()), *option));
  }
  return stage;
}

}  // namespace

std::string to_json(const Chain& chain) {
  validate(chain);
  Json object;
  object["format"] = kFormat;
  object["version"] = 1;
  object["input_bytes"] = chain.input_bytes;
  put(object, "fixed_bytes", chain.fixed_bytes);
  if (!chain.holds_input) {
    object["holds_input"] = false;
  }
  if (chain.loss.seconds != 0 || chain.loss.workspace_bytes != 0) {
    object["loss"] = Json::object();
    put(object["loss"], "seconds", chain.loss.seconds);
    put(object["loss"], "workspace_bytes", chain.loss.workspace_bytes);
  }
  for (const Store& store : chain.stores) {
    object["stores"].push_back(store_to_json(store));
  }
  for (const Stage& stage : chain.stages) {
    object["stages"].push_back(stage_to_json(chain, stage));
  }
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Chain chain_from_json(std::string_view text, std::string_view source) {
  const nlohmann::json value = parse_json("plan", source, text);
  const std::string place(source);
  const Fields fields(place, value,
                      {"format", "version", "input_bytes", "fixed_bytes",
                       "holds_input", "loss", "stores", "stages"});
  check_format(fields, kFormat);
  Chain chain;
  chain.input_bytes = fields.integer("input_bytes");
  chain.fixed_bytes = fields.integer("fixed_bytes", 0);
  chain.holds_input = fields.boolean("holds_input", true);
  if (fields.has("loss")) {
    const Fields loss(place + ": loss", value["loss"],
                      {"seconds", "workspace_bytes"});
    chain.loss.seconds = loss.number("seconds", 0);
    chain.loss.workspace_bytes = loss.integer("workspace_bytes", 0);
  }
  for (const nlohmann::json* store : fields.array("stores")) {
    chain.stores.push_back(
        store_from_json(str(place, ": store ", chain.stores.size()), *store));
  }
  for (const nlohmann::json* stage : fields.array("stages")) {
    chain.stages.push_back(stage_from_json(
        chain, str(place, ": stage ", chain.stages.size()), *stage));
  }
  validate(chain);
  return chain;
}

Chain read_chain(const std::filesystem::path& path) {
  return chain_from_json(read_file(path), path.string());
}

void write_chain(const std::filesystem::path& path, const Chain& chain) {
  write_file(path, to_json(chain));
}

}  // namespace remat::plan
