#include "remat/plan/schedule.h"

#include <array>
#include <limits>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/suggest.h"
#include "remat/plan/chain.h"
#include "remat/plan/json_fields.h"

namespace remat::plan {
namespace {

constexpr const char* kFormat = "remat-schedule";

struct KindName {
  std::string_view name;
  std::string_view letters;
};

constexpr std::array<KindName, kActionKinds> kNames = {{
    {"forward_save", "Fa"},
    {"forward_keep", "Fc"},
    {"forward_drop", "Fn"},
    {"loss", "L"},
    {"backward", "B"},
    {"store", "S"},
    {"fetch", "R"},
    {"free", "X"},
    {"free_saved", "Xa"},
    {"free_stored", "Xs"},
}};

const KindName& names_of(ActionKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

ActionKind kind_from_json(const Fields& fields) {
  const std::string name = fields.string("do");
  std::vector<std::string> names;
  for (int kind = 0; kind < kActionKinds; ++kind) {
    if (kNames[kind].name == name) {
      return static_cast<ActionKind>(kind);
    }
    names.emplace_back(kNames[kind].name);
  }
  fields.refuse("do", "no action is called that" + did_you_mean(name, names));
}

template <class Integer>
Integer small(const Fields& fields, std::string_view name, int64_t least,
              int64_t most) {
  const int64_t value = fields.integer(name, 0);
  if (value < least || value > most) {
    fields.refuse(name, str("it must be from ", least, " to ", most));
  }
  return static_cast<Integer>(value);
}

Action action_from_json(const std::string& source, const nlohmann::json& value,
                        int stages) {
  const Fields fields(source, value, {"do", "stage", "way", "store"});
  Action action;
  action.kind = kind_from_json(fields);
  if (action.kind != ActionKind::kLoss) {
    fields.integer("stage");
    action.stage = small<int32_t>(fields, "stage", 0, stages);
  }
  action.way = small<int16_t>(fields, "way", 0, kMaxWays - 1);
  action.store =
      small<int16_t>(fields, "store", 0, std::numeric_limits<int16_t>::max());
  return action;
}

}  // namespace

std::string_view name_of(ActionKind kind) { return names_of(kind).name; }

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const Action& action : schedule.actions) {
    if (!text.empty()) {
      text += ' ';
    }
    text += names_of(action.kind).letters;
    if (action.kind != ActionKind::kLoss) {
      text += std::to_string(action.stage);
    }
    if (action.way != 0) {
      text += '.' + std::to_string(action.way);
    }
  }
  return text;
}

std::string to_json(const Schedule& schedule) {
  using Json = nlohmann::ordered_json;
  // An action a line: a schedule has thousands.
  std::string text = str("{\"format\": \"", kFormat, "\", \"version\": 1, ",
                         "\"stages\": ", schedule.stages, ",\n \"actions\": [");
  const char* separator = "\n";
  for (const Action& action : schedule.actions) {
    Json object;
    object["do"] = name_of(action.kind);
    if (action.kind != ActionKind::kLoss) {
      object["stage"] = action.stage;
    }
    if (action.way != 0) {
      object["way"] = action.way;
    }
    if (action.store != 0) {
      object["store"] = action.store;
    }
    text += separator + ("  " + object.dump());
    separator = ",\n";
  }
  return text + "\n]}\n";
}

Schedule schedule_from_json(std::string_view text, std::string_view source) {
  const nlohmann::json value = parse_json("plan", source, text);
  const std::string place(source);
  const Fields fields(place, value, {"format", "version", "stages", "actions"});
  check_format(fields, kFormat);
  Schedule schedule;
  fields.integer("stages");
  schedule.stages = small<int>(fields, "stages", 1, kMaxStages);
  for (const nlohmann::json* action : fields.array("actions")) {
    schedule.actions.push_back(
        action_from_json(str(place, ": action ", schedule.actions.size()),
                         *action, schedule.stages));
  }
  return schedule;
}

Schedule read_schedule(const std::filesystem::path& path) {
  return schedule_from_json(read_file(path), path.string());
}

void write_schedule(const std::filesystem::path& path,
                    const Schedule& schedule) {
  write_file(path, to_json(schedule));
}

}  // namespace remat::plan
