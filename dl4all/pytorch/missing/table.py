"""Names of PyTorch that dl4all does not have, each with what to use in its place or why it is not there."""

from __future__ import annotations

# Written by tools/torch_names.py, which takes off it what dl4all has by now.
VERSION = "2.13"
"""Whose names were looked through."""

REASONS: dict[str, str] = {
    "backend": "not planned: it belongs to a library or a device of PyTorch's that dl4all does not use",
    "internal": "not planned: a part of PyTorch's own machinery",
    "removed": "not planned: removed or deprecated in PyTorch",
    "complex": "not planned: dl4all has no complex numbers",
    "sparse": "not in dl4all: sparse tensors go as far as dl.sparse does; use dense ones",
    "quantized": "not in dl4all: weights of int8 are dl.quantization.quantize_'s",
    "dtype": "not planned: tensors have float32, 64, 16, bfloat16, float8, int64, 32, 16, 8, uint8 and bool",
    "nested": "not planned: nested tensors; use dl.nn.utils.rnn.pad_sequence",
    "tracing": "not planned: dl4all does not compile Python; dl.compile records calls",
    "in_place": "not in dl4all: use the method, x.{name}()",
    "functional": "not in dl4all under this name: use dl.nn.functional.{name}",
    "copy": "not in dl4all: use the view of that name and .clone()",
    "factorization": "not in dl4all yet; there are inverse, cholesky, qr, svd and dl.linalg, or numpy.linalg",
    "special": "not in dl4all yet: there is no kernel; use SciPy on x.numpy()",
    "signal": "not in dl4all yet: windows and Fourier transforms; use NumPy's or SciPy's",
    "fourier": "not planned: dl4all has no complex numbers; use numpy.fft on x.numpy()",
    "memory": "not planned: the memory of a tensor is not given out; use .numpy() or dl.from_numpy",
    "autocast": "not in dl4all: use dl.autocast, dl.get_autocast_dtype, dl.set_autocast_dtype",
    "yet": "not in dl4all yet",
    "distributed": "not in dl4all: dl.distributed has process groups, their collectives, send and recv",
    "cuda": "not in dl4all, which has no CUDA: use dl.accelerator, dl.memory, dl.Stream, dl.Event",
    "script": "not planned: TorchScript; use dl.compile(model), and dl.save or dl.io.save_weights for files",
    "spelling": "not in dl4all: PyTorch's old name; use the one that ends in _",
    "settings": "not planned: a setting of PyTorch's process that dl4all does not have",
}
"""The answer for a group of names."""

MISSING: dict[str, dict[str, str]] = {
    "torch.utils": {
        "internal": (
            "ThroughputBenchmark backcompat backend_registration cmake_prefix_path collect_env "
            "cpp_backtrace deterministic generate_methods_for_privateuse1_backend get_cpp_backtrace hooks "
            "rename_privateuse1_backend set_module throughput_benchmark weak"
        ),
    },
    "torch.utils.data": {
        "removed": (
            "DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation datapipes "
            "functional_datapipe graph graph_settings guaranteed_datapipes_determinism non_deterministic "
            "runtime_validation runtime_validation_disabled"
        ),
    },
    "torch.distributions": {
        "internal": (
            "constraint_registry continuous_bernoulli exp_family fishersnedecor generalized_pareto "
            "inverse_gamma kumaraswamy lkj_cholesky logistic_normal lowrank_multivariate_normal "
            "mixture_same_family pareto relaxed_bernoulli relaxed_categorical utils von_mises weibull "
            "wishart"
        ),
        "yet": (
            "CatTransform ContinuousBernoulli CorrCholeskyTransform CumulativeDistributionTransform "
            "ExponentialFamily FisherSnedecor GeneralizedPareto IndependentTransform InverseGamma "
            "Kumaraswamy LKJCholesky LogisticNormal LowRankMultivariateNormal LowerCholeskyTransform "
            "MixtureSameFamily Pareto PositiveDefiniteTransform RelaxedBernoulli RelaxedOneHotCategorical "
            "ReshapeTransform SoftmaxTransform SoftplusTransform StackTransform StickBreakingTransform "
            "VonMises Weibull Wishart biject_to identity_transform transform_to"
        ),
    },
    "torch": {
        "backend": (
            "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
            "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cpu "
            "cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu "
            "cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable "
            "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
            "fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight "
            "fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix get_device_module "
            "is_vulkan_available miopen_batch_norm miopen_convolution miopen_convolution_add_relu "
            "miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss "
            "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d mkldnn_convolution "
            "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer mtia "
            "native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm "
            "native_norm"
        ),
        "internal": (
            "AVG AggregationType AliasDb AnyType Argument ArgumentSpec AwaitType BFloat16Storage "
            "BFloat16Tensor BenchmarkConfig BenchmarkExecutionStats Block BoolStorage BoolType BufferDict "
            "ByteStorage CallStack Capsule CharStorage ClassType Code CompilationUnit CompleteArgumentSpec "
            "ComplexDoubleStorage ComplexFloatStorage ComplexType ConcreteModuleType "
            "ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext DeviceObjType "
            "DictType DisableTorchFunction DisableTorchFunctionSubclass DispatchKey DispatchKeySet "
            "DoubleStorage EnumType ErrorReport ExcludeDispatchKeyGuard ExecutionPlan FatalError FileCheck "
            "FloatStorage FloatType FunctionSchema Future FutureType Gradient Graph GraphExecutorState "
            "HalfStorage IODescriptor InferredType IntStorage IntType InterfaceType JITException ListType "
            "LiteScriptModule LockingLogger LoggerBase LongStorage Node NoneType NoopLogger NumberType "
            "OperatorInfo OptionalType PRIVATE_OPS PyObjectType PyTorchFileReader PyTorchFileWriter "
            "QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage RRefType SUM "
            "ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator "
            "ScriptFunction ScriptList ScriptListIterator ScriptMethod ScriptModule ScriptModuleSerializer "
            "ScriptObject ScriptObjectProperty SerializationStorageContext ShortStorage StaticModule "
            "Storage StorageBase StreamObjType StringType SymBool SymBoolType SymFloat SymInt SymIntType "
            "Tag TensorType ThroughputBenchmark TracingState TupleType Type TypedStorage USE_GLOBAL_DEPS "
            "USE_RTLD_GLOBAL_WITH_LIBTORCH UnionType UntypedStorage Use Value classes classproperty "
            "compiled_with_cxx11_abi fork from_file functional futures get_file_path has_lapack has_mkl "
            "has_openmp has_spectral hash_tensor import_ir_module import_ir_module_from_buffer "
            "init_num_threads is_storage jagged legacy_contiguous_format library masked "
            "merge_type_from_type_comment monitor overrides parse_ir parse_schema parse_type_comment "
            "prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 "
            "quasirandom return_types serialization signal storage sym_constrain_range "
            "sym_constrain_range_for_size sym_float sym_fresh_size sym_int sym_ite sym_max sym_min sym_not "
            "sym_sqrt sym_sum thread_safe_generator torch_version typename types unify_type_list wait"
        ),
        "removed": (
            "affine_grid_generator alpha_dropout_ constant_pad_nd conv_tbc convolution dropout_ eig "
            "embedding_renorm_ feature_alpha_dropout_ feature_dropout feature_dropout_ frobenius_norm "
            "grid_sampler grid_sampler_2d grid_sampler_3d gru gru_cell lstm lstm_cell lstsq lu matrix_rank "
            "nonzero_static norm_except_dim nuclear_norm resize_as_ rnn_relu rnn_relu_cell rnn_tanh "
            "rnn_tanh_cell symeig"
        ),
        "complex": (
            "angle complex conj_physical conj_physical_ imag is_conj is_neg polar resolve_conj resolve_neg "
            "view_as_complex view_as_complex_copy view_as_real view_as_real_copy"
        ),
        "sparse": (
            "ccol_indices_copy col_indices_copy crow_indices_copy dsmm hsmm hspmm indices_copy "
            "resize_as_sparse_ row_indices_copy saddmm smm sparse_bsc sparse_bsc_tensor sparse_bsr "
            "sparse_bsr_tensor sparse_compressed_tensor sparse_coo sparse_csc sparse_csc_tensor sparse_csr "
            "sparse_csr_tensor sspaddmm values_copy"
        ),
        "quantized": (
            "choose_qparams_optimized dequantize empty_quantized fake_quantize_per_channel_affine "
            "fake_quantize_per_tensor_affine fused_moving_avg_obs_fake_quant int_repr per_channel_affine "
            "per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric "
            "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme "
            "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm "
            "quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_max_pool1d "
            "quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell"
        ),
        "dtype": (
            "bit bits16 bits1x8 bits2x4 bits4x2 bits8 chalf complex32 float4_e2m1fn_x2 "
            "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu int1 int2 int3 int4 int5 int6 int7 "
            "qint32 quint2x4 quint4x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
        ),
        "nested": ("nested"),
        "in_place": (
            "abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ "
            "atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ "
            "exp_ expm1_ fill_ fix_ floor_ frac_ index_put_ ldexp_ log10_ log1p_ log2_ log_ logit_ "
            "nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ "
            "square_ tan_ tanh_ trunc_ xlogy_ zero_"
        ),
        "functional": (
            "adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear "
            "binary_cross_entropy_with_logits celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d "
            "conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout "
            "embedding embedding_bag feature_alpha_dropout group_norm hardshrink hinge_embedding_loss "
            "instance_norm kl_div layer_norm margin_ranking_loss max_pool1d max_pool1d_with_indices "
            "max_pool2d max_pool3d poisson_nll_loss relu_ rms_norm rrelu rrelu_ selu_ threshold threshold_ "
            "triplet_margin_loss"
        ),
        "copy": (
            "alias_copy as_strided_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy "
            "select_copy slice_copy slice_inverse split_copy split_with_sizes_copy squeeze_copy t_copy "
            "transpose_copy unbind_copy unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes "
            "unsqueeze_copy view_copy"
        ),
        "factorization": ("geqrf lobpcg lu_solve lu_unpack orgqr ormqr pca_lowrank svd_lowrank"),
        "special": ("gcd_ i0 i0_ igamma igammac lcm_"),
        "signal": ("istft stft"),
        "memory": ("as_strided_ as_strided_scatter empty_permuted empty_strided frombuffer to_dlpack"),
        "autocast": (
            "autocast_decrement_nesting autocast_increment_nesting get_autocast_cpu_dtype "
            "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_cache_enabled "
            "is_autocast_cpu_enabled is_autocast_ipu_enabled is_autocast_xla_enabled "
            "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled "
            "set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled "
            "set_autocast_xla_dtype set_autocast_xla_enabled"
        ),
        "yet": ("histogramdd"),
        "settings": (
            "get_deterministic_debug_mode is_anomaly_check_nan_enabled is_distributed is_inference "
            "is_warn_always_enabled set_deterministic_debug_mode set_warn_always"
        ),
    },
    "torch.Tensor": {
        "backend": ("is_ipu is_maia record_stream to_mkldnn"),
        "removed": (
            "as_subclass dim_order eig grad_dtype hash_tensor is_distributed lstsq lu module_load "
            "nonzero_static output_nr reinforce resize resize_as retains_grad solve storage_type symeig "
            "volatile"
        ),
        "complex": ("angle cdouble cfloat chalf conj_physical conj_physical_ imag resolve_conj resolve_neg"),
        "sparse": (
            "ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced "
            "resize_as_sparse_ row_indices smm sparse_dim sparse_mask sparse_resize_ "
            "sparse_resize_and_clear_ sspaddmm to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc "
            "to_sparse_csr values"
        ),
        "quantized": (
            "dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
            "q_zero_point qscheme"
        ),
        "nested": ("to_padded_tensor"),
        "copy": ("slice_inverse unsafe_chunk unsafe_split unsafe_split_with_sizes"),
        "factorization": ("geqrf lu_solve orgqr ormqr"),
        "special": ("i0 i0_ igamma igamma_ igammac igammac_"),
        "signal": ("istft stft"),
        "memory": (
            "as_strided_ as_strided_scatter const_data_ptr is_set_to map2_ new_empty_strided resize_as_ "
            "set_ untyped_storage"
        ),
        "yet": ("float_power_ narrow_copy register_post_accumulate_grad_hook"),
    },
    "torch.nn": {
        "internal": ("common_types factory_kwargs grad intrinsic qat quantizable quantized"),
    },
    "torch.nn.functional": {
        "backend": ("ScalingType SwizzleType grouped_mm native_channel_shuffle scaled_grouped_mm scaled_mm"),
        "internal": (
            "BroadcastingList1 BroadcastingList2 BroadcastingList3 DType GRID_SAMPLE_INTERPOLATION_MODES "
            "GRID_SAMPLE_PADDING_MODES assert_int_or_pair boolean_dispatch handle_torch_function "
            "has_torch_function has_torch_function_unary has_torch_function_variadic reproducibility_notes "
            "sparse_support_notes tf32_notes"
        ),
        "removed": ("conv_tbc"),
        "yet": (
            "fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
            "fractional_max_pool3d_with_indices linear_cross_entropy"
        ),
    },
    "torch.nn.init": {
        "sparse": ("sparse"),
        "spelling": ("constant dirac eye kaiming_normal normal orthogonal xavier_normal xavier_uniform"),
    },
    "torch.nn.utils": {
        "internal": (
            "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format convert_parameters "
            "init memory_format"
        ),
    },
    "torch.optim": {
        "internal": ("swap_in_optimizer_params_and_state"),
    },
    "torch.optim.lr_scheduler": {
        "internal": ("EPOCH_DEPRECATION_WARNING Optimizer"),
    },
    "torch.linalg": {
        "internal": ("common_notes"),
        "factorization": (
            "eig eigvals householder_product ldl_factor ldl_factor_ex ldl_solve lu lu_factor lu_factor_ex "
            "lu_solve"
        ),
    },
    "torch.fft": {
        "internal": ("common_args factory_common_args"),
        "fourier": (
            "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn "
            "irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn"
        ),
    },
    "torch.special": {
        "internal": ("common_args multi_dim_common"),
        "special": (
            "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u "
            "chebyshev_polynomial_v chebyshev_polynomial_w gammainc gammaincc hermite_polynomial_h "
            "hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p "
            "modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
            "scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t "
            "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w "
            "spherical_bessel_j0"
        ),
    },
    "torch.distributed": {
        "distributed": (
            "AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig "
            "BarrierOptions BroadcastOptions BuiltinCommHookType DebugLevel FileStore GatherOptions "
            "GroupMember GroupName HashStore Logger P2POp PrefixStore ProcessGroupGloo QueueEmptyError "
            "ReduceOptions ReduceScatterOptions Reducer ScatterOptions Store TCPStore algorithms "
            "all_gather_coalesced all_gather_single all_reduce_coalesced all_to_all all_to_all_single "
            "autograd batch_isend_irecv breakpoint c10d_logger config constants default_pg_timeout "
            "device_mesh distributed_c10d gather_object get_backend_config get_debug_level "
            "get_default_backend_for_device get_global_rank get_group_rank get_pg_count group "
            "init_device_mesh irecv is_ucc_available is_xccl_available isend logging_handlers new_subgroups "
            "new_subgroups_by_enumeration record_comm recv_object_list reduce_op reduce_scatter_single "
            "register_rendezvous_handler remote_device rendezvous rpc scatter_object_list send_object_list "
            "set_debug_level set_debug_level_from_env shrink_group split_group supports_complex utils"
        ),
    },
    "torch.autograd": {
        "internal": (
            "DeviceType NestedIOFunction ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState "
            "SavedTensor anomaly_mode enforce_grad_layout_policy handle_torch_function has_torch_function "
            "is_multithreading_enabled is_tensor_like is_view_replay_enabled kineto_available "
            "profiler_legacy profiler_util set_multithreading_enabled"
        ),
    },
    "torch.cuda": {
        "internal": (
            "AcceleratorError BFloat16Storage BFloat16Tensor BoolStorage ByteStorage CharStorage "
            "ComplexDoubleStorage ComplexFloatStorage CudaError DEVICE_REQUIREMENT DeferredCudaCallError "
            "DoubleStorage FloatStorage HalfStorage IntStorage LongStorage PYTORCH_RELEASES_CODE_CC "
            "ShortStorage classproperty cudaStatus cudart"
        ),
        "cuda": (
            "CUDAPluggableAllocator ExternalStream GreenContext MemPool StreamContext "
            "caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
            "caching_allocator_enable change_current_allocator check_error clock_rate current_blas_handle "
            "current_solver_handle default_generators device_memory_used gds get_allocator_backend "
            "get_gencode_flags get_per_process_memory_fraction get_stream_from_external get_sync_debug_mode "
            "graph_pool_handle graphs green_contexts has_half has_magma host_memory_stats "
            "host_memory_stats_as_nested_dict is_current_stream_capturing is_tf32_supported jiterator "
            "list_gpu_processes max_memory_cached memory_cached memory_stats_as_nested_dict memory_usage "
            "power_draw reset_accumulated_host_memory_stats reset_accumulated_memory_stats "
            "reset_max_memory_cached reset_peak_host_memory_stats set_per_process_memory_fraction "
            "set_sync_debug_mode sparse temperature tunable use_mem_pool utilization"
        ),
    },
    "torch.amp": {
        "internal": ("grad_scaler"),
    },
    "torch.jit": {
        "script": (
            "Attribute CompilationUnit Error Future ONNXTracedModule RecursiveScriptClass "
            "RecursiveScriptModule ScriptFunction ScriptWarning TopLevelTracedModule TracedModule "
            "TracerWarning TracingCheckError enable_onednn_fusion export_opnames frontend fuser isinstance "
            "jit_module_from_flatbuffer last_executed_optimized_graph onednn_fusion_enabled "
            "optimized_execution run_frozen_optimizations save_jit_module_to_flatbuffer set_fusion_strategy "
            "set_module strict_fusion"
        ),
    },
    "torch.accelerator": {
        "internal": ("Graph graphs"),
        "yet": ("empty_host_cache get_device_capability reset_accumulated_memory_stats"),
    },
    "torch.backends": {
        "backend": ("cusparselt kleidiai mha miopen nnpack python_native quantized"),
    },
    "torch.profiler": {
        "internal": (
            "DeviceType ExecutionTraceObserver KinetoStepTracker Optimizer RecordScope is_fbcode itt "
            "kineto_available profiler register_optimizer_step_post_hook"
        ),
    },
    "torch.random": {
        "internal": ("thread_safe_generator"),
    },
    "torch.compiler": {
        "tracing": (
            "CacheInfo NestedCompileRegionOptions allow_in_graph assume_constant_result config "
            "cudagraph_mark_step_begin get_default_backend keep_portable_guards_unsafe "
            "keep_tensor_guards_unsafe list_backends load_cache_artifacts load_compiled_function "
            "nested_compile_region reset save_cache_artifacts set_default_backend "
            "set_enable_guard_collectives set_stance skip_all_guards_unsafe "
            "skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe "
            "skip_guard_on_inbuilt_nn_modules_unsafe substitute_in_graph wrap_numpy"
        ),
    },
    "torch.multiprocessing": {
        "internal": (
            "ENV_VAR_PARALLEL_START ProcessContext SpawnContext get_all_sharing_strategies "
            "get_sharing_strategy init_reductions reductions set_sharing_strategy"
        ),
    },
}
"""Names by space and reason."""

INSTEAD: dict[str, dict[str, str]] = {
    "torch.utils": {
        "dlpack": "dl.from_dlpack",
        "swap_tensors": "x.data = y",
    },
    "torch": {
        "AcceleratorError": "dl.errors.DeviceError",
        "GradScaler": "dl.amp.GradScaler",
        "ModuleDict": "dl.nn.ModuleDict",
        "ParameterDict": "dl.nn.ParameterDict",
        "conj": "x itself: there are no complex numbers",
        "default_generator": "dl.manual_seed, dl.get_rng_state and dl.set_rng_state",
        "detach": "x.detach()",
        "export": "dl.compile",
        "fill": "dl.full_like",
        "get_device": "x.device",
        "is_anomaly_enabled": "dl.autograd.detect_anomaly",
        "is_inference_mode_enabled": "dl.is_grad_enabled",
        "package": "dl.save",
        "range": "dl.arange",
        "set_anomaly_enabled": "dl.autograd.detect_anomaly",
        "solve": "numpy.linalg.solve on x.numpy()",
        "split_with_sizes": "x.split(sizes)",
    },
    "torch.Tensor": {
        "apply_": "dl ops, or x.numpy()",
        "conj": "x itself: there are no complex numbers",
        "data_ptr": "x.numpy() or dl.memory.host_view(x)",
        "index": "x[...]",
        "ipu": 'x.to("auto")',
        "is_shared": "x itself: processes send elements",
        "layout": "x.stride(): tensors are dense",
        "map_": "dl ops, or x.numpy()",
        "mtia": 'x.to("auto")',
        "name": "a variable",
        "pin_memory": "dl.pin(array)",
        "polygamma": "dl.polygamma(n, x)",
        "polygamma_": "x.copy_(dl.polygamma(n, x))",
        "resize_": "x.data = ..., or dl.empty",
        "share_memory_": "x itself: processes send elements",
        "split_with_sizes": "x.split(sizes)",
        "xpu": 'x.to("auto")',
    },
    "torch.nn": {
        "Container": "dl.nn.Module",
        "CrossMapLRN2d": "dl.nn.LocalResponseNorm",
        "NLLLoss2d": "dl.nn.NLLLoss",
    },
    "torch.nn.functional": {},
    "torch.nn.utils": {
        "clip_grad": "dl.nn.utils.clip_grad_norm_",
        "skip_init": "dl.nn.init",
    },
    "torch.optim": {},
    "torch.linalg": {
        "LinAlgError": "dl.Dl4allError",
    },
    "torch.distributed": {
        "DeviceMesh": "dl.DeviceGroup",
        "DistBackendError": "dl.distributed.DistError",
        "DistStoreError": "dl.distributed.DistNetworkError",
        "GradBucket": "what dl.nn.parallel.DistributedDataParallel.register_comm_hook gives to hooks",
        "Work": "what collectives return for async_op=True",
        "monitored_barrier": "dl.distributed.barrier",
    },
    "torch.autograd": {
        "forward_ad": "dl.autograd.jvp",
        "graph": "dl.autograd.Function",
        "profiler": "dl.profiler",
        "set_detect_anomaly": "dl.autograd.detect_anomaly",
    },
    "torch.cuda": {
        "CUDAGraph": "dl.compile",
        "graph": "dl.compile",
        "make_graphed_callables": "dl.compile",
        "memory_snapshot": "dl.memory.trace(device)",
        "nccl": "dl.parallel(model)",
        "nvtx": "dl.profile",
        "profiler": "dl.profiler",
    },
    "torch.jit": {
        "fork": "threads",
        "freeze": "dl.compile(model)",
        "interface": "the class itself",
        "load": "dl.load",
        "optimize_for_inference": "dl.compile(model)",
        "save": "dl.save",
        "trace": "dl.compile(model)",
        "trace_module": "dl.compile(model)",
        "wait": "threads",
    },
    "torch.accelerator": {
        "current_stream": "dl.Stream",
        "device_index": "with dl.device(name):",
        "get_memory_info": "dl.memory.stats(device)",
        "memory_stats": "dl.memory.stats(device)",
        "set_stream": "with dl.Stream(device):",
    },
    "torch.backends": {
        "opt_einsum": "dl.einsum, which orders products by opt_einsum",
    },
    "torch.profiler": {},
    "torch.random": {},
    "torch.compiler": {
        "compile": "dl.compile",
        "disable": "the function itself, outside of what dl.compile gets",
    },
    "torch.multiprocessing": {
        "ProcessExitedException": "dl.errors.DataError",
        "ProcessRaisedException": "dl.errors.DataError",
        "start_processes": "dl.multiprocessing.spawn",
    },
}
"""The name or the code to use in place of a name."""
