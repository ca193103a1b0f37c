#include "remat/data/json_line.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "remat/base/error.h"

namespace remat::data {
namespace {

// "column: message", or the members as name=value.
std::string outcome(std::string_view line) {
  try {
    std::string text;
    for (const JsonMember& member : parse_json_line(line)) {
      text += str(member.name, "=", describe(member.kind), " ", member.value,
                  "@", member.column, ";");
    }
    return text;
  } catch (const JsonLineError& error) {
    return str(error.column(), ": ", error.what());
  }
}

TEST(JsonLine, ReadsEveryKindOfValue) {
  EXPECT_EQ(outcome(R"({})"), "");
  EXPECT_EQ(outcome(R"({"a":"x","b" : -1.5e3, "c":true,"d":null})"),
            "a=a string x@6;b=a number -1.5e3@16;c=a boolean true@28;"
            "d=null null@37;");
  EXPECT_EQ(outcome(R"( {"a":[1,{"b":[]}],"c":{"d":{}}} )"),
            "a=an array [1,{\"b\":[]}]@7;c=an object {\"d\":{}}@24;");
  EXPECT_EQ(outcome(R"({"a":"\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude42"})"),
            "a=a string \"\\/\b\f\n\r\té€🙂@6;");
}

TEST(JsonLine, SaysWhereAndWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "1: expected '{', found the end of the line"},
      {"[1]", "1: expected '{', found '['"},
      {R"({"a": "x"l})", "10: expected ',' or '}' after a value, found 'l'"},
      {R"({"a": 1)",
       "8: expected ',' or '}' after a value, found the end of the line"},
      {R"({"a": 1 "b": 2})",
       "9: expected ',' or '}' after a value, found '\"'"},
      {R"({a: 1})", "2: expected '\"' or '}', found 'a'"},
      {R"({"a": 1,})", "9: expected '\"' of a key after ',', found '}'"},
      {R"({"a" 1})", "6: expected ':' after a key, found '1'"},
      {R"({"a": })", "7: expected a value, found '}'"},
      {R"({"a": nul})", "7: expected a value, found 'n'"},
      {R"({"a": é})", "7: expected a value, found 'é'"},
      {R"({"a": [1 2]})", "10: expected ',' or ']' after a value, found '2'"},
      {R"({"a": 1} x)", "10: expected nothing after the object, found 'x'"},
      {R"({"a": "x)", "7: the string that begins here has no closing '\"'"},
      {"{\"a\": \"\x01\"}",
       "8: the control character 0x01 must be escaped in a string"},
      {R"({"a": "\x"})", "8: unknown escape: '\\' and then 'x'"},
      {R"({"a": "\u12g4"})",
       "12: expected four hexadecimal digits after \\u, found 'g'"},
      {R"({"a": "\ud83d"})", "8: half of a surrogate pair in a \\u escape"},
      {R"({"a": "\ude42"})", "8: half of a surrogate pair in a \\u escape"},
      {R"({"a": 01})", "7: a number must not begin with 0"},
      {R"({"a": -x})", "8: expected a digit after '-', found 'x'"},
      {R"({"a": 1.})", "9: expected a digit after '.', found '}'"},
      {R"({"a": 1e})", "9: expected a digit of an exponent, found '}'"},
      {R"({"a": 1, "a": 2})", "10: the key \"a\" stands twice"},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_EQ(outcome(line), expected) << line;
  }
}

TEST(JsonLine, LimitsNesting) {
  const std::string open(200, '['), close(200, ']');
  EXPECT_EQ(outcome("{\"a\":" + open + close + "}"),
            "105: more than 100 levels of nesting");
}

// nlohmann::json is the oracle: the same lines are accepted, with equal values.
// It reports no repeated keys, so those are counted by its callback.
bool oracle_accepts(const std::string& line, nlohmann::json& value) {
  std::vector<std::set<std::string>> keys;
  bool repeated = false;
  const auto callback = [&](int, nlohmann::json::parse_event_t event,
                            nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) {
      keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      repeated |= !keys.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  try {
    value = nlohmann::json::parse(line, callback);
  } catch (const nlohmann::json::out_of_range&) {
    value = nlohmann::json::object();  // 1e999: a number all the same
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return value.is_object() && !repeated;
}

RC_GTEST_PROP(JsonLine, AcceptsWhatAnotherParserAccepts, ()) {
  // Tokens rather than bytes: bytes alone are almost never nearly right.
  const auto tokens = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>(
          "{", "}", "[", "]", ":", ",", "\"a\"", "\"b\"", "\"\\u00e9\"",
          "\"\\ud83d\\ude42\"", "\"\\ud83d\"", "1", "-0", "01", "1.5e-3", "1.",
          "true", "false", "null", "nul", " ", "\"", "\\",
          "{\"a\":", "\"c\":1,", "\t", "\x01", "é"));
  std::string line = "{\"text\":";
  for (const std::string& token : tokens) {
    line += token;
  }
  if (*rc::gen::arbitrary<bool>()) {
    line += "}";
  }
  nlohmann::json value;
  const bool accepted = oracle_accepts(line, value);
  try {
    const auto members = parse_json_line(line);
    RC_ASSERT(accepted);
    for (const JsonMember& member : members) {
      if (member.kind == JsonKind::kString) {
        RC_ASSERT(value.at(member.name).get<std::string>() == member.value);
      }
    }
  } catch (const JsonLineError& error) {
    RC_ASSERT(!accepted);
    RC_ASSERT(error.column() >= 1u);
    RC_ASSERT(error.column() <= line.size() + 1);
  }
}

}  // namespace
}  // namespace remat::data
