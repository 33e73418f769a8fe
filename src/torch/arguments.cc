#include "arguments.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>

namespace lowtide::torch_runtime {
namespace {

c10::TypePtr without_optional(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

Argument read_element(pybind11::handle description, const c10::TypePtr& type) {
  const auto pair = description.cast<pybind11::tuple>();
  const auto kind = pair[0].cast<std::string>();
  Argument argument;
  argument.type = without_optional(type);
  if (kind == "value" || kind == "number") {
    argument.kind = kind == "value" ? Argument::Kind::value : Argument::Kind::number;
    argument.index = pair[1].cast<int>();
  } else if (kind == "list") {
    argument.kind = Argument::Kind::list;
    const auto list = argument.type->cast<c10::ListType>();
    TORCH_CHECK(list, "lowtide: a list was given where the schema asks for ", argument.type->str());
    for (const auto item : pair[1].cast<pybind11::list>()) {
      argument.elements.push_back(read_element(item, list->getElementType()));
    }
  } else {
    TORCH_CHECK(kind == "constant", "lowtide: unknown kind of argument: ", kind);
    argument.constant = read_constant(pair[1], type);
  }
  return argument;
}

template <typename Element, typename Convert>
c10::IValue build_list(const Argument& argument, const std::vector<at::Tensor>& values,
                       const std::vector<c10::IValue>& numbers, Convert convert) {
  c10::List<Element> list;
  list.reserve(argument.elements.size());
  for (const Argument& element : argument.elements) list.push_back(convert(build(element, values, numbers)));
  return list;
}

}  // namespace

c10::IValue read_constant(pybind11::handle object, const c10::TypePtr& type) {
  const torch::jit::ToIValueAllowNumbersAsTensors allow(true);
  return torch::jit::toIValue(object, type);
}

Argument read_argument(pybind11::handle description, const c10::Argument& schema) {
  if (description.cast<pybind11::tuple>()[0].cast<std::string>() == "default") {
    TORCH_CHECK(schema.default_value().has_value(), "lowtide: argument ", schema.name(), " has no default");
    Argument argument;
    argument.constant = *schema.default_value();
    argument.type = without_optional(schema.type());
    return argument;
  }
  return read_element(description, schema.type());
}

c10::IValue build(const Argument& argument, const std::vector<at::Tensor>& values,
                  const std::vector<c10::IValue>& numbers) {
  switch (argument.kind) {
    case Argument::Kind::constant:
      return argument.constant;
    case Argument::Kind::value:
      return values[static_cast<std::size_t>(argument.index)];
    case Argument::Kind::number: {
      const c10::IValue& number = numbers[static_cast<std::size_t>(argument.index)];
      if (argument.type->kind() == c10::TypeKind::TensorType) {
        return at::native::wrapped_scalar_tensor(number.toScalar());
      }
      if (argument.type->kind() == c10::TypeKind::FloatType) return number.toScalar().toDouble();
      return number;
    }
    case Argument::Kind::list:
      break;
  }
  const auto element = argument.type->castRaw<c10::ListType>()->getElementType();
  switch (element->kind()) {
    case c10::TypeKind::TensorType:
      return build_list<at::Tensor>(argument, values, numbers, [](const c10::IValue& v) { return v.toTensor(); });
    case c10::TypeKind::OptionalType:
      return build_list<std::optional<at::Tensor>>(argument, values, numbers, [](const c10::IValue& v) {
        return v.isNone() ? std::optional<at::Tensor>() : std::optional<at::Tensor>(v.toTensor());
      });
    case c10::TypeKind::FloatType:
      return build_list<double>(argument, values, numbers, [](const c10::IValue& v) { return v.toDouble(); });
    default: {
      c10::impl::GenericList list(element);
      for (const Argument& item : argument.elements) list.push_back(build(item, values, numbers));
      return list;
    }
  }
}

void collect_numbers(const Argument& argument, std::vector<int>* indices) {
  if (argument.kind == Argument::Kind::number) indices->push_back(argument.index);
  for (const Argument& element : argument.elements) collect_numbers(element, indices);
}

void collect_values(const Argument& argument, std::vector<int>* indices) {
  if (argument.kind == Argument::Kind::value) indices->push_back(argument.index);
  for (const Argument& element : argument.elements) collect_values(element, indices);
}

}  // namespace lowtide::torch_runtime
