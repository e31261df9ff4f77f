// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --link-kernels --split-input-file --verify-diagnostics %s

// Custom calls of other targets stay: no error.
func.func @other(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @Sharding(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @no_config(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{the custom call's config cannot be used: it has no kernel in its backend_config}}
  %0 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A config of another compiler: {"kernel_version": 1, "func_name": "add"}
func.func @another(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{the custom call's config cannot be used: it has no 'nki_mlir'}}
  %0 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%a) {
    backend_config = "eyJrZXJuZWxfdmVyc2lvbiI6IDEsICJmdW5jX25hbWUiOiAiYWRkIn0="} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
