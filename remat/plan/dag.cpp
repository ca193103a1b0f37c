#include "remat/plan/dag.h"

#include <algorithm>
#include <map>
#include <set>

#include "remat/base/file.h"
#include "remat/base/suggest.h"
#include "remat/plan/checker.h"
#include "remat/plan/json_fields.h"

namespace remat::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "remat-dag";
constexpr const char* kInputName = "input";

void check_links(const char* field, const std::vector<int>& links, int last,
                 const Checker& check) {
  std::set<int> seen;
  for (const int link : links) {
    if (link < kGraphInput || link > last) {
      check.refuse(field, link, "it must be from -1, the graph's input, to ",
                   last);
    }
    if (!seen.insert(link).second) {
      check.refuse(field, link, "it is there twice");
    }
  }
}

void check_node(const DagNode& node, int number, const Checker& names,
                std::set<std::string>& seen, Checker& check) {
  if (node.name.empty() || node.name == kInputName) {
    names.refuse("name", str("\"", node.name, "\""),
                 "each node has a name, and \"", kInputName,
                 "\" is that of the graph's input");
  }
  if (!seen.insert(node.name).second) {
    names.refuse("name", str("\"", node.name, "\""),
                 "an earlier node has that name");
  }
  check_links("inputs", node.inputs, number - 1, check);
  check_links("backward_reads", node.backward_reads, number, check);
  check.seconds("forward_seconds", node.forward_seconds);
  check.seconds("backward_seconds", node.backward_seconds);
  check.bytes("output_bytes", node.output_bytes);
  check.bytes("saved_bytes", node.saved_bytes);
  check.bytes("forward_workspace_bytes", node.forward_workspace_bytes);
  check.bytes("backward_workspace_bytes", node.backward_workspace_bytes);
}

// The names that links may use, the graph's input first.
class Names {
 public:
  Names() { add(kInputName); }

  void add(const std::string& name) {
    index_.emplace(name, static_cast<int>(names_.size()) - 1);
    names_.push_back(name);
  }

  int last() const { return static_cast<int>(names_.size()) - 2; }

  std::vector<int> links(const Fields& fields, const char* field) const {
    std::vector<int> links;
    for (const nlohmann::json* element : fields.array(field)) {
      if (!element->is_string()) {
        fields.refuse(field, "it must be an array of names of nodes");
      }
      const auto name = element->get<std::string>();
      const auto found = index_.find(name);
      if (found == index_.end()) {
        fields.refuse(field, str("no node up to this one is called \"", name,
                                 "\"", did_you_mean(name, names_)));
      }
      links.push_back(found->second);
    }
    return links;
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, int> index_;
};

DagNode node_from_json(const std::string& source, const nlohmann::json& value,
                       Names& names) {
  const Fields fields(source, value,
                      {"name", "inputs", "backward_reads", "forward_seconds",
                       "backward_seconds", "output_bytes", "saved_bytes",
                       "forward_workspace_bytes", "backward_workspace_bytes"});
  DagNode node;
  node.name = fields.string("name");
  node.inputs = names.links(fields, "inputs");
  names.add(node.name);
  if (fields.has("backward_reads")) {
    node.backward_reads = names.links(fields, "backward_reads");
  } else {
    node.backward_reads = node.inputs;
    node.backward_reads.push_back(names.last());
  }
  node.forward_seconds = fields.number("forward_seconds");
  node.backward_seconds = fields.number("backward_seconds");
  node.output_bytes = fields.integer("output_bytes");
  node.saved_bytes = fields.integer("saved_bytes", 0);
  node.forward_workspace_bytes = fields.integer("forward_workspace_bytes", 0);
  node.backward_workspace_bytes = fields.integer("backward_workspace_bytes", 0);
  return node;
}

}  // namespace

void validate(const Dag& dag) {
  Checker check("graph");
  if (dag.nodes.empty()) {
    check.refuse("nodes", "empty", "it must have at least one node");
  }
  if (dag.nodes.size() > static_cast<size_t>(kMaxStages)) {
    check.refuse("nodes", dag.nodes.size(), "at most ", kMaxStages,
                 " are planned: join some");
  }
  check.bytes("input_bytes", dag.input_bytes);
  check.bytes("fixed_bytes", dag.fixed_bytes);
  check.enter("loss");
  check.seconds("seconds", dag.loss.seconds);
  check.bytes("workspace_bytes", dag.loss.workspace_bytes);
  std::set<std::string> names;
  std::vector<bool> read(dag.nodes.size(), false);
  for (int i = 0; i < dag.size(); ++i) {
    const DagNode& node = dag.nodes[i];
    Checker unnamed("graph");
    unnamed.enter(str("node ", i));
    check.enter(place_of("node", i, node.name));
    check_node(node, i, unnamed, names, check);
    for (const int input : node.inputs) {
      if (input != kGraphInput) {
        read[input] = true;
      }
    }
  }
  const auto unread = std::find(read.begin(), read.end() - 1, false);
  if (unread != read.end() - 1) {
    const auto i = static_cast<size_t>(unread - read.begin());
    check.enter(place_of("node", i, dag.nodes[i].name));
    check.refuse("inputs", "that of no node after it",
                 "only the last node's value goes to the loss");
  }
}

std::vector<int> cut_points(const Dag& dag) {
  validate(dag);
  // The last reader of each value.
  std::vector<int> last(dag.nodes.size(), 0);
  for (int i = 0; i < dag.size(); ++i) {
    for (const auto* links :
         {&dag.nodes[i].inputs, &dag.nodes[i].backward_reads}) {
      for (const int link : *links) {
        if (link != kGraphInput) {
          last[link] = i;
        }
      }
    }
  }
  // How many values begin and end to pass, by position.
  std::vector<int> change(dag.nodes.size() + 1, 0);
  for (int i = 0; i < dag.size(); ++i) {
    if (last[i] > i) {
      ++change[i + 1];
      --change[last[i] + 1];
    }
  }
  std::vector<int> cuts;
  int passing = 0;
  for (int i = 1; i < dag.size(); ++i) {
    passing += change[i];
    if (passing == 1) {
      cuts.push_back(i);
    }
  }
  return cuts;
}

std::string to_json(const Dag& dag) {
  validate(dag);
  Json object;
  object["format"] = kFormat;
  object["version"] = 1;
  object["input_bytes"] = dag.input_bytes;
  const auto put = [](Json& into, const char* name, auto value) {
    if (value != 0) {
      into[name] = value;
    }
  };
  put(object, "fixed_bytes", dag.fixed_bytes);
  if (dag.loss.seconds != 0 || dag.loss.workspace_bytes != 0) {
    object["loss"] = Json::object();
    put(object["loss"], "seconds", dag.loss.seconds);
    put(object["loss"], "workspace_bytes", dag.loss.workspace_bytes);
  }
  const auto names = [&](const std::vector<int>& links) {
    Json array = Json::array();
    for (const int link : links) {
      array.push_back(link == kGraphInput ? kInputName
                                          : dag.nodes[link].name.c_str());
    }
    return array;
  };
  for (const DagNode& node : dag.nodes) {
    Json entry;
    entry["name"] = node.name;
    entry["inputs"] = names(node.inputs);
    entry["backward_reads"] = names(node.backward_reads);
    entry["forward_seconds"] = node.forward_seconds;
    entry["backward_seconds"] = node.backward_seconds;
    entry["output_bytes"] = node.output_bytes;
    put(entry, "saved_bytes", node.saved_bytes);
    put(entry, "forward_workspace_bytes", node.forward_workspace_bytes);
    put(entry, "backward_workspace_bytes", node.backward_workspace_bytes);
    object["nodes"].push_back(entry);
  }
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Dag dag_from_json(std::string_view text, std::string_view source) {
  const nlohmann::json value = parse_json("plan", source, text);
  const std::string place(source);
  const Fields fields(
      place, value,
      {"format", "version", "input_bytes", "fixed_bytes", "loss", "nodes"});
  check_format(fields, kFormat);
  Dag dag;
  dag.input_bytes = fields.integer("input_bytes");
  dag.fixed_bytes = fields.integer("fixed_bytes", 0);
  if (fields.has("loss")) {
    const Fields loss(place + ": loss", value["loss"],
                      {"seconds", "workspace_bytes"});
    dag.loss.seconds = loss.number("seconds", 0);
    dag.loss.workspace_bytes = loss.integer("workspace_bytes", 0);
  }
  Names names;
  for (const nlohmann::json* node : fields.array("nodes")) {
    dag.nodes.push_back(
        node_from_json(str(place, ": node ", dag.nodes.size()), *node, names));
  }
  validate(dag);
  return dag;
}

Dag read_dag(const std::filesystem::path& path) {
  return dag_from_json(read_file(path), path.string());
}

void write_dag(const std::filesystem::path& path, const Dag& dag) {
  write_file(path, to_json(dag));
}

}  // namespace remat::plan
