// The defaults of the manifest's fields as constants of the program.
//
// Code that fills in a default takes it from the table (spec_fields.h) by the field's path. A path
// that the table does not have, or a row without such a default, does not compile. Constants, any
// thread.
#pragma once

#include <algorithm>
#include <string_view>

#include "base/manifest/spec_fields.h"

namespace crowdsurf::manifest {

// What the functions below are made of. clang 14 lets no consteval template call a consteval
// function, so these are constexpr: outside a constant, a wrong path would throw.
namespace of_row {

constexpr const Field& RowOf(std::string_view path) {
  for (const Field& field : kSpecFields) {
    if (field.path == path) return field;
  }
  throw "the manifest has no such field";
}

// Digits, and at most one point.
constexpr double Number(std::string_view path) {
  double digits = 0, scale = 1;
  bool fraction = false;
  if (RowOf(path).fallback.empty()) throw "the field has no default";
  for (const char c : RowOf(path).fallback) {
    if (c == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9') throw "the default is no decimal number";
    digits = digits * 10 + (c - '0');
    if (fraction) scale *= 10;
  }
  return digits / scale;  // rounded once: both are exact below 2^53
}

// Without its quotes.
constexpr std::string_view Text(std::string_view path) {
  const std::string_view text = RowOf(path).fallback;
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') throw "the default is no text";
  return text.substr(1, text.size() - 2);
}

}  // namespace of_row

consteval const Field& RowOf(std::string_view path) { return of_row::RowOf(path); }

// Of an integer or a number.
consteval double NumberDefault(std::string_view path) { return of_row::Number(path); }

template <class T>
consteval T IntegerDefault(std::string_view path) {
  const double number = of_row::Number(path);
  const T value = static_cast<T>(number);
  if (static_cast<double>(value) != number) throw "the default does not fit";
  return value;
}

// Of a choice or a text, without its quotes.
consteval std::string_view TextDefault(std::string_view path) { return of_row::Text(path); }

// The place of `name` in `names`, which single spaces separate; -1 when it is not there.
constexpr int IndexOf(std::string_view name, std::string_view names) {
  for (int index = 0;; ++index) {
    const size_t end = names.find(' ');
    if (names.substr(0, end) == name) return index;
    if (end == names.npos) return -1;
    names.remove_prefix(end + 1);
  }
}

// The name at `index` of `names`; empty when there are fewer.
constexpr std::string_view NameAt(int index, std::string_view names) {
  for (; index > 0 && !names.empty(); --index) {
    names.remove_prefix(std::min(names.find(' '), names.size() - 1) + 1);
  }
  return names.substr(0, names.find(' '));
}

// Of a choice: the enumerator that has the default's place in `names`, or in the row's own choices.
template <class E>
consteval E ChoiceDefault(std::string_view path, std::string_view names) {
  const int index = IndexOf(of_row::Text(path), names);
  if (index < 0) throw "the default is none of the names";
  return static_cast<E>(index);
}
template <class E>
consteval E ChoiceDefault(std::string_view path) {
  const int index = IndexOf(of_row::Text(path), of_row::RowOf(path).choices);
  if (index < 0) throw "the default is none of the choices";
  return static_cast<E>(index);
}

}  // namespace crowdsurf::manifest
