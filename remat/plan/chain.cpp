#include "remat/plan/chain.h"

#include <set>

#include "remat/plan/checker.h"

namespace remat::plan {
namespace {

void check_stores(const Chain& chain, Checker& check) {
  std::set<std::string> names;  // options name their store in files
  for (size_t i = 0; i < chain.stores.size(); ++i) {
    const Store& store = chain.stores[i];
    check.enter(place_of("store", i, store.name));
    if (!names.insert(store.name).second) {
      check.refuse("name", str("\"", store.name, "\""),
                   "an earlier store has that name");
    }
    if (store.capacity_bytes < 0) {
      check.refuse("capacity_bytes", store.capacity_bytes,
                   "it must not be negative");
    }
    if (store.capacity_values < 0) {
      check.refuse("capacity_values", store.capacity_values,
                   "it must not be negative");
    }
    if (store.capacity_bytes != kUnlimited &&
        store.capacity_values != kUnlimited) {
      check.refuse("capacity_values", store.capacity_values,
                   "limit the store by capacity_bytes or by this, not by both");
    }
    check.seconds("write_seconds", store.write_seconds);
    check.seconds("read_seconds", store.read_seconds);
    check.rate("write_bytes_per_second", store.write_bytes_per_second);
    check.rate("read_bytes_per_second", store.read_bytes_per_second);
  }
}

void check_option(const Chain& chain, const Stage& stage,
                  const StageOption& option, Checker& check) {
  check.bytes("saved_bytes", option.saved_bytes);
  if (option.holds_output && option.saved_bytes < stage.output_bytes) {
    check.refuse(
        "saved_bytes", option.saved_bytes,
        "with holds_output it includes the output_bytes of the stage, ",
        stage.output_bytes);
  }
  check.seconds("extra_forward_seconds", option.extra_forward_seconds);
  check.seconds("extra_backward_seconds", option.extra_backward_seconds);
  check.bytes("forward_workspace_bytes", option.forward_workspace_bytes);
  check.bytes("backward_workspace_bytes", option.backward_workspace_bytes);
  check.bytes("stored_bytes", option.stored_bytes);
  const int stores = static_cast<int>(chain.stores.size());
  if (option.store < -1 || option.store >= stores) {
    check.refuse("store", option.store, "the chain has ", stores,
                 " stores, counted from 0; -1 is none");
  }
  if (option.store == -1 && option.stored_bytes > 0) {
    check.refuse("stored_bytes", option.stored_bytes,
                 "name the store that holds them");
  }
}

void check_stage(const Chain& chain, const Stage& stage, std::string place,
                 Checker& check) {
  check.enter(place);
  check.seconds("forward_seconds", stage.forward_seconds);
  check.seconds("backward_seconds", stage.backward_seconds);
  check.bytes("output_bytes", stage.output_bytes);
  check.bytes("saved_bytes", stage.saved_bytes);
  if (stage.saved_bytes < stage.output_bytes) {
    check.refuse("saved_bytes", stage.saved_bytes,
                 "it includes the output_bytes of the stage, ",
                 stage.output_bytes);
  }
  check.bytes("forward_workspace_bytes", stage.forward_workspace_bytes);
  check.bytes("backward_workspace_bytes", stage.backward_workspace_bytes);
  if (stage.options.size() >= static_cast<size_t>(kMaxWays)) {
    check.refuse("options", stage.options.size(), "a stage has at most ",
                 kMaxWays - 1);
  }
  for (size_t k = 0; k < stage.options.size(); ++k) {
    check.enter(place + ", " + place_of("option", k, stage.options[k].name));
    check_option(chain, stage, stage.options[k], check);
  }
}

}  // namespace

void validate(const Chain& chain) {
  Checker check("chain");
  if (chain.stages.empty()) {
    check.refuse("stages", "empty", "it must have at least one stage");
  }
  if (chain.stages.size() > static_cast<size_t>(kMaxStages)) {
    check.refuse("stages", chain.stages.size(), "at most ", kMaxStages,
                 " are planned: join some");
  }
  check.bytes("input_bytes", chain.input_bytes);
  check.bytes("fixed_bytes", chain.fixed_bytes);
  check.enter("loss");
  check.seconds("seconds", chain.loss.seconds);
  check.bytes("workspace_bytes", chain.loss.workspace_bytes);
  check_stores(chain, check);
  for (size_t i = 0; i < chain.stages.size(); ++i) {
    check_stage(chain, chain.stages[i],
                place_of("stage", i, chain.stages[i].name), check);
  }
}

double forward_seconds(const Chain& chain) {
  double seconds = 0;
  for (const Stage& stage : chain.stages) {
    seconds += stage.forward_seconds;
  }
  return seconds;
}

double least_seconds(const Chain& chain) {
  double seconds = chain.loss.seconds + forward_seconds(chain);
  for (const Stage& stage : chain.stages) {
    seconds += stage.backward_seconds;
  }
  return seconds;
}

double write_seconds(const Store& store, int64_t bytes) {
  const double rate = store.write_bytes_per_second;
  return store.write_seconds +
         (rate > 0 ? static_cast<double>(bytes) / rate : 0);
}

double read_seconds(const Store& store, int64_t bytes) {
  const double rate = store.read_bytes_per_second;
  return store.read_seconds +
         (rate > 0 ? static_cast<double>(bytes) / rate : 0);
}

}  // namespace remat::plan
