// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// "torchneuron/register.h": NEURON_LIBRARY(library, m) { m.def("operator", &shape_function, "kernel_function"); }
#pragma once
#include <torch/torch.h>

#include <utility>

namespace gpsimd {

// A kernel's parameters: what is passed is the same in registers whether a tensor is declared by value or reference.
template <class T> struct Parameter {
  static_assert(!std::is_same<T, T>::value,
                "the parameters of an operator are const torch::Tensor&, torch::Scalar, double and int64_t");
};
template <> struct Parameter<torch::Tensor> {
  using Passed = const torch::Tensor&;
  static constexpr char code = 'T';
  static torch::Tensor of(const Arg& arg) { return torch::Tensor(Memory(input(arg))); }
};
template <> struct Parameter<torch::Scalar> {
  using Passed = const torch::Scalar&;
  static constexpr char code = 'S';
  static torch::Scalar of(const Arg& arg) { return torch::Scalar(arg.number); }
};
template <> struct Parameter<double> {
  using Passed = double;
  static constexpr char code = 'd';
  static double of(const Arg& arg) { return arg.number; }
};
template <> struct Parameter<int64_t> {
  using Passed = int64_t;
  static constexpr char code = 'i';
  static int64_t of(const Arg& arg) { return static_cast<int64_t>(arg.number); }
};

using Call = torch::Tensor (*)(void* function, const Arg* args);

template <class... A> struct Signature {
  template <class Function, size_t... I>
  static torch::Tensor apply(void* function, const Arg* args, std::index_sequence<I...>) {
    (void)args;
    return reinterpret_cast<Function>(function)(Parameter<std::decay_t<A>>::of(args[I])...);
  }
  static torch::Tensor shape(void* function, const Arg* args) {
    return apply<torch::Tensor (*)(A...)>(function, args, std::index_sequence_for<A...>());
  }
  static torch::Tensor kernel(void* function, const Arg* args) {
    return apply<torch::Tensor (*)(typename Parameter<std::decay_t<A>>::Passed...)>(function, args,
                                                                                    std::index_sequence_for<A...>());
  }
};

void define(const char* name, const char* kernel, const char* parameters, void* shape, Call call_shape, Call call_kernel);
void declare(const char* library, int abi, bool multicore, bool checked);

struct Library {
  template <class... A>
  void def(const char* name, torch::Tensor (*shape)(A...), const char* kernel) {
    const char parameters[] = {Parameter<std::decay_t<A>>::code..., 0};
    define(name, kernel, parameters, reinterpret_cast<void*>(shape), &Signature<A...>::shape, &Signature<A...>::kernel);
  }
};

struct Registration {
  Registration(const char* library, void (*definitions)(Library&)) {
    declare(library, GPSIMD_ABI, GPSIMD_MULTICORE, GPSIMD_CHECKED);
    Library m;
    definitions(m);
  }
};

}  // namespace gpsimd

#define NEURON_LIBRARY(library, m)                                                                  \
  static void gpsimd_definitions_##library(gpsimd::Library&);                                       \
  static gpsimd::Registration gpsimd_registration_##library(#library, &gpsimd_definitions_##library); \
  static void gpsimd_definitions_##library(gpsimd::Library& m)
