// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --split-input-file --verify-diagnostics %s

// Complex numbers, indices, and integers of other widths than StableHLO's are refused before any rewriting.

// expected-error @+1 {{a tensor of complex<f32> in a graph is not supported}}
func.func @complex(%x: tensor<8x16xcomplex<f32>>) -> tensor<8x16xcomplex<f32>> {
  return %x : tensor<8x16xcomplex<f32>>
}

// -----

func.func @complex_inside(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // expected-error @+1 {{a tensor of complex<f32> in a graph is not supported}}
  %c = stablehlo.complex %x, %x : tensor<8x16xcomplex<f32>>
  %r = stablehlo.real %c : (tensor<8x16xcomplex<f32>>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

// -----

// expected-error @+1 {{a tensor of i513 in a graph is not supported}}
func.func @wide_indices(%x: tensor<8x16xf32>, %i: tensor<3x1xi513>, %u: tensor<3x16xf32>) -> tensor<8x16xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<8x16xf32>, tensor<3x1xi513>, tensor<3x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
