// The code before every cell of C++: how values are shown, and what the host gets to know of a cell.
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace sandcove {
// Shared by all cells: each is a library of its own, and inline variables exist once for all of them.
inline int at = 0;            // the part of the cell that runs
inline constinit std::string value;     // of the last expression
inline bool has_value = false;
inline constinit std::string failure;   // the type of an exception
inline constinit std::string message;   // and what it says

inline std::string demangled(const char* name) {
  int status = 0;
  char* readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 ? readable : name;
  std::free(readable);
  return text;
}

// Each cell has these itself: a later cell may change how a type is shown.
namespace {
inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t place; (place = text.find(from)) != std::string::npos;) text.replace(place, from.size(), to);
}

// The readable name of a type.
template <typename T> std::string type_name() {
  std::string text = __PRETTY_FUNCTION__;
  auto start = text.find("T = ") + 4;
  auto end = text.find("; std::string", start);
  text = text.substr(start, (end == std::string::npos ? text.rfind(']') : end) - start);
  replace_all(text, "__cxx11::", "");
  replace_all(text, "std::basic_string<char>", "std::string");
  replace_all(text, "std::basic_string_view<char>", "std::string_view");
  replace_all(text, " >", ">");
  return text;
}

}  // namespace

template <typename T> concept Streamed = requires(std::ostream& out, const T& item) { out << item; };
template <typename T> concept Ranged = requires(const T& item) { item.begin(); item.end(); };
template <typename T> concept Keyed = requires { typename T::mapped_type; };
template <typename T> concept Paired = requires(const T& item) { item.first; item.second; };
template <typename T> concept Optional = requires(const T& item) { item.has_value(); *item; };
template <typename T> concept Texted = std::is_convertible_v<const T&, std::string> || std::is_convertible_v<const T&, std::string_view>;

namespace {
struct Collector : std::streambuf {
  std::string text;
  int overflow(int letter) override {
    if (letter != traits_type::eof()) text.push_back(char(letter));
    return 0;
  }
  std::streamsize xsputn(const char* letters, std::streamsize count) override {
    text.append(letters, std::size_t(count));
    return count;
  }
};

template <typename T> std::string shown(const T& item) {
  if constexpr (std::is_function_v<T>) return "a function";
  else if constexpr (std::is_same_v<T, bool>) return item ? "true" : "false";
  else if constexpr (std::is_same_v<T, char>) return std::string("'") + item + "'";
  else if constexpr (std::is_same_v<std::decay_t<T>, char*> || std::is_same_v<std::decay_t<T>, const char*>) {
    const char* letters = item;
    return letters ? '"' + std::string(letters) + '"' : "nullptr";
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) return "nullptr";
  else if constexpr (Texted<T>) return '"' + std::string(item) + '"';
  else if constexpr (Paired<T>) return "{ " + shown(item.first) + ", " + shown(item.second) + " }";
  else if constexpr (Ranged<T> && !Streamed<T>) {
    std::string text = "{";
    for (auto place = item.begin(); place != item.end(); ++place) {
      if (text.size() > 1) text += ',';
      if constexpr (Keyed<T>) text += ' ' + shown(place->first) + " => " + shown(place->second);
      else {
        // A vector of bool has no elements of its own.
        using Element = std::remove_cvref_t<decltype(*place)>;
        if constexpr (std::is_class_v<Element> && std::is_convertible_v<Element, bool> && !Streamed<Element>) text += ' ' + shown(bool(*place));
        else text += ' ' + shown(*place);
      }
    }
    return text + " }";
  } else if constexpr (std::is_array_v<T>) {
    std::string text = "{";
    for (const auto& each : item) text += (text.size() > 1 ? ", " : " ") + shown(each);
    return text + " }";
  } else if constexpr (std::is_enum_v<T> && !Streamed<T>) return std::to_string(static_cast<long long>(item));
  else if constexpr (Optional<T> && !Streamed<T>) return item.has_value() ? shown(*item) : "nullopt";
  else if constexpr (Streamed<T>) {
    Collector collector;
    std::ostream out(&collector);
    out << item;
    return collector.text;
  } else {
    // A value without text is shown by its address.
    Collector collector;
    std::ostream out(&collector);
    out << '@' << static_cast<const void*>(std::addressof(item));
    return collector.text;
  }
}

// `expression, End{}` keeps the value of the expression, and is nothing where it has none.
struct End {};
template <typename T> void operator,(T&& item, End) {
  using Bare = std::remove_cvref_t<T>;
  if constexpr (!std::is_base_of_v<std::ios_base, Bare>) {
    value = "(" + type_name<Bare>() + ") " + shown(item);
    has_value = true;
  }
}

}  // namespace

// The status of a `main` that failed.
struct Status {
  int code;
};

// Runs a cell in order: the initialisers of its variables, and its statements, which are initialisers too.
template <typename First, typename Last> int run(First first, Last last) {
  failure.clear(), message.clear(), value.clear(), has_value = false, at = 0;
  int code = 0;
  try {
    for (auto step = first; step != last; ++step) (*step)();
  } catch (const std::exception& error) {
    failure = demangled(typeid(error).name()), message = error.what(), code = 1;
  } catch (const std::string& text) {
    failure = "std::string", message = text, code = 1;
  } catch (const char* text) {
    failure = "const char*", message = text, code = 1;
  } catch (int number) {
    failure = "int", message = std::to_string(number), code = 1;
  } catch (const Status& status) {
    failure = "sandcove::Status", message = std::to_string(status.code), code = 1;
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    failure = demangled(abi::__cxa_current_exception_type()->name()), code = 1;
  }
  std::cout.flush(), std::cerr.flush(), std::clog.flush();
  std::fflush(nullptr);
  return code;
}
}  // namespace sandcove
