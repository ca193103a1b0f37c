#include "remat/data/records.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "remat/base/file.h"
#include "tests/data/thrown_text.h"

namespace remat::data {
namespace {

std::string summary(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    text += record.text + "|" + record.label + ";";
  }
  return text;
}

std::string jsonl(std::string_view text, const RecordColumns& columns = {}) {
  return summary(parse_records(text, "jsonl", "a.jsonl", columns));
}

std::string csv(std::string_view text, const RecordColumns& columns = {}) {
  return summary(parse_records(text, "csv", "a.csv", columns));
}

std::string jsonl_error(std::string_view text) {
  return thrown_text([&] { jsonl(text); });
}

std::string csv_error(std::string_view text) {
  return thrown_text([&] { csv(text); });
}

const std::string kWanted =
    " The line must be one JSON object with \"text\" and \"label\".";

TEST(Records, ReadsJsonLines) {
  EXPECT_EQ(jsonl("\xEF\xBB\xBF{\"text\":\"a\",\"label\":\"x\"}\r\n\n  \r\n"
                  "{\"label\":1,\"text\":\"b\",\"more\":[1]}"),
            "a|x;b|1;");
  EXPECT_EQ(jsonl(R"({"text":"a","label":true})"), "a|true;");
  EXPECT_EQ(jsonl(R"({"text":"a","label":-0})"), "a|0;");
  EXPECT_EQ(jsonl(R"({"text":"a","label":"1"})"), "a|1;");
  EXPECT_EQ(jsonl(R"({"body":"a"})", {"body", "label", false}), "a|;");
}

TEST(Records, NamesLineAndColumnOfBrokenJson) {
  const std::string good = "{\"text\":\"a\",\"label\":\"x\"}\n";
  EXPECT_EQ(jsonl_error(good + "{\"text\": \"b\"l"),
            "[data] a.jsonl:2: column 13: expected ',' or '}' after a value, "
            "found 'l'." +
                kWanted);
  EXPECT_EQ(jsonl_error("\n{\"text\": \"b\"\r\n"),
            "[data] a.jsonl:2: column 13: expected ',' or '}' after a value, "
            "found the end of the line." +
                kWanted);
  EXPECT_EQ(jsonl_error(R"({"text":"a","stars":1})"),
            "[data] a.jsonl:1: no \"label\"; the line has \"text\", "
            "\"stars\"." +
                kWanted);
  EXPECT_EQ(jsonl_error("{}"),
            "[data] a.jsonl:1: no \"text\"; the line has no fields." + kWanted);
}

TEST(Records, NamesUnsuitableValues) {
  EXPECT_EQ(jsonl_error(R"({"text":7,"label":1})"),
            "[data] a.jsonl:1: column 9: \"text\" is a number; it must be a "
            "string");
  EXPECT_EQ(jsonl_error(R"({"text":" \n","label":1})"),
            "[data] a.jsonl:1: column 9: the text is empty");
  EXPECT_EQ(jsonl_error(R"({"text":"a","label":""})"),
            "[data] a.jsonl:1: column 21: the label is empty");
  EXPECT_EQ(jsonl_error(R"({"text":"a","label":1.5})"),
            "[data] a.jsonl:1: column 21: the label is 1.5; it must be a "
            "string, a whole number or a boolean");
  EXPECT_EQ(jsonl_error(R"({"text":"a","label":null})"),
            "[data] a.jsonl:1: column 21: the label is null; it must be a "
            "string, a whole number or a boolean");
}

TEST(Records, NamesTheByteThatIsNotUtf8) {
  EXPECT_EQ(jsonl_error("{}\n{\"text\":\"a\xFF\"}"),
            "[data] a.jsonl:2: column 11: the byte 0xFF is not valid UTF-8");
  EXPECT_EQ(csv_error("text,label\na\xC3,x\n"),
            "[data] a.csv:2: column 2: the byte 0xC3 is not valid UTF-8");
  // Overlong, surrogate, beyond the last code point, cut off.
  for (const char* bad :
       {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_NE(csv_error(bad).find("is not valid UTF-8"), std::string::npos);
  }
}

TEST(Records, RefusesFilesWithoutRecords) {
  EXPECT_EQ(jsonl_error(" \n\n"), "[data] a.jsonl: the file is empty");
  EXPECT_EQ(csv_error(""), "[data] a.csv: the file is empty");
  EXPECT_EQ(csv_error("text,label\n"),
            "[data] a.csv: there is a header, but no record");
}

TEST(Records, ReadsCsv) {
  EXPECT_EQ(csv("text,label\na,x\n\nb,y"), "a|x;b|y;");
  EXPECT_EQ(csv("\xEF\xBB\xBFid,label,text\r\n1,x,\"a, \"\"b\"\"\r\nc\"\r\n"),
            "a, \"b\"\r\nc|x;");
  EXPECT_EQ(csv(",text,label,\n0,a,x,\n"), "a|x;");
  EXPECT_EQ(csv("text\na\n", {"text", "label", false}), "a|;");
}

TEST(Records, NamesLineAndColumnOfBrokenCsv) {
  EXPECT_EQ(csv_error("text,label\n\"a\nb\",x\n\"c,y\nd\n"),
            "[data] a.csv:4: column 1: the quote that is opened here is never "
            "closed");
  EXPECT_EQ(csv_error("text,label\n\"a\nb\" ,x\n"),
            "[data] a.csv:3: column 3: expected ',' or the end of the line "
            "after a closing quote, found ' '");
  EXPECT_EQ(csv_error("text,label\na \"b\",x\n"),
            "[data] a.csv:2: column 3: a quote within an unquoted field; put "
            "the whole field in quotes and double those inside");
  EXPECT_EQ(csv_error("text,label\n\"a\nb\",x\nc,y,z\n"),
            "[data] a.csv:4: 3 fields, but the header has 2");
  EXPECT_EQ(csv_error("text,label\na\n"),
            "[data] a.csv:2: 1 field, but the header has 2");
  EXPECT_EQ(csv_error("text,label,text\n"),
            "[data] a.csv:1: column 12: the column \"text\" stands twice");
  EXPECT_EQ(csv_error("text,stars\na,1\n"),
            "[data] a.csv:1: no column \"label\"; the header has \"text\", "
            "\"stars\"");
  EXPECT_EQ(csv_error("text,label\n \t,x\n"),
            "[data] a.csv:2: column 1: the text is empty");
  EXPECT_EQ(csv_error("text,label\na,\n"),
            "[data] a.csv:2: column 3: the label is empty");
  EXPECT_EQ(csv_error(std::string_view("text,label\na\0b,x\n", 17)),
            "[data] a.csv:2: column 2: a NUL byte; is this text?");
  EXPECT_EQ(csv_error(std::string_view("text,label\n\"a\0b\",x\n", 19)),
            "[data] a.csv:2: column 3: a NUL byte; is this text?");
}

TEST(Records, ReadsFilesByTheirEnding) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "a.CSV";
  write_file(path, "text,label\na,x\n");
  EXPECT_EQ(summary(read_records(path, {})), "a|x;");
  EXPECT_EQ(thrown_text([] { read_records("notes.txt", {}); }),
            "[data] notes.txt: the name must end in .jsonl, .json (one object "
            "a line) or .csv, so that its format is known");
  EXPECT_EQ(thrown_text([] { read_records("missing.csv", {}); }),
            "[file] cannot read missing.csv: No such file or directory");
  EXPECT_EQ(thrown_text([] { parse_records("", "tsv", "a", {}); }),
            "[data] a: unknown format \"tsv\"; it must be jsonl or csv");
}

TEST(Labels, AreSortedByValueThenText) {
  std::vector<Record> records;
  for (const char* label : {"10", "b", "9", "-1", "a", "9", "09"}) {
    records.push_back({"text", label});
  }
  const auto labels = LabelSet::of(records, "a.csv");
  EXPECT_EQ(labels.names(),
            (std::vector<std::string>{"-1", "09", "9", "10", "a", "b"}));
  EXPECT_EQ(labels.size(), 6);
  EXPECT_EQ(labels.index({"t", "10"}, "a.csv"), 3);
}

TEST(Labels, NamesWhatIsWrong) {
  EXPECT_EQ(thrown_text([] {
              LabelSet::of({{"t", "x"}}, "a.csv");
            }),
            "[data] a.csv: the only label is \"x\"; a classifier needs at "
            "least two");
  EXPECT_EQ(thrown_text([] {
              LabelSet({"x", "y", "x"});
            }),
            "[data] the label \"x\" stands twice in the list");
  EXPECT_EQ(thrown_text([] {
              LabelSet({"x", "y"}).index({"t", "z", 7}, "v.csv");
            }),
            "[data] v.csv:7: the label \"z\" does not occur in training; the "
            "known labels are \"x\", \"y\"");
  std::vector<std::string> many;
  for (int i = 100; i < 150; ++i) {
    many.push_back(str(i));
  }
  const auto text = thrown_text([&] {
    LabelSet(many).index({"t", "z"}, "v.csv");
  });
  EXPECT_NE(text.find("\"119\" and 30 more"), std::string::npos) << text;
}

// Texts of many kinds of characters, never blank.
rc::Gen<std::string> any_text() {
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(
                          rc::gen::element<std::string>(
                              "a", "bc", " ", ",", "\"", "\n", "\r\n", "\\",
                              "\t", "é", "🙂", "{", "'", "\xEF\xBB\xBF")),
                      [](const std::vector<std::string>& parts) {
                        std::string text = "x";
                        for (const std::string& part : parts) {
                          text += part;
                        }
                        return text;
                      });
}

RC_GTEST_PROP(Records, ComeBackFromCsvAndJsonLines, ()) {
  const auto values = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
          rc::gen::pair(any_text(), any_text())));
  const auto quoted = [](const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
      text += c == '"' ? "\"\"" : std::string(1, c);
    }
    return text + "\"";
  };
  std::string as_csv = "label,text\r\n", as_jsonl, expected;
  for (const auto& [text, label] : values) {
    as_csv += quoted(label) + "," + quoted(text) + "\r\n";
    as_jsonl += nlohmann::json{{"text", text}, {"label", label}}.dump() + "\n";
    expected += text + "|" + label + ";";
  }
  RC_ASSERT(csv(as_csv) == expected);
  RC_ASSERT(jsonl(as_jsonl) == expected);
}

RC_GTEST_PROP(Records, GarbageIsRefusedOrReadButNeverCrashes, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::oneOf(rc::gen::element<std::string>(
                         "text,label\n", "\"", ",", "\n", "\r", "{\"text\":\"",
                         "\",\"label\":", "1}", "}", "a"),
                     rc::gen::map(rc::gen::arbitrary<char>(),
                                  [](char c) { return std::string(1, c); })));
  std::string text;
  for (const std::string& piece : pieces) {
    text += piece;
  }
  for (const char* format : {"jsonl", "csv"}) {
    try {
      for (const Record& record : parse_records(text, format, "a", {})) {
        RC_ASSERT(!record.text.empty());
        RC_ASSERT(!record.label.empty());
      }
    } catch (const UsageError& error) {
      RC_ASSERT(std::string(error.what()).rfind("[data] a:", 0) == 0u);
    }
  }
}

}  // namespace
}  // namespace remat::data
