"""What is public: every name, by the module that has it.

This is the promise of `docs/stability.md`. A name comes in by being written here, beside its
docstring with arguments and an example; it goes by a `Deprecation` (`svod/base/deprecation.py`).
Tests compare the modules with this list, in both directions. Nothing reads it at run time.
"""

PUBLIC: dict[str, str] = {
    "svod": """
        DType ExecutionPlan Generator MemoryMode Opt OptimizerConfig PrepareConfig Size Strategy
        Tensor Variable __array_namespace_info__ __version__ abs abs_ absolute acos acos_ acosh
        acosh_ adaptive_avg_pool1d adaptive_max_pool1d add addbmm addcdiv addcmul addmm addmv addmv_
        addr adjoint alias_copy all allclose alpha_dropout amax amin aminmax angle any arange arccos
        arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan_ arctanh
        arctanh_ argmax argmin argsort argwhere as_strided as_strided_copy as_strided_scatter
        as_tensor asarray asin asin_ asinh asinh_ astype atan atan2 atan_ atanh atanh_ atleast_1d
        atleast_2d atleast_3d autograd avg_pool1d avg_pool2d avg_pool3d baddbmm bartlett_window
        batch_norm bernoulli bfloat16 bilinear binary_cross_entropy binary_cross_entropy_with_logits
        bincount bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor blackman_window block_diag bmm bool broadcast_arrays
        broadcast_shapes broadcast_tensors broadcast_to bucketize can_cast cartesian_prod cat cdist
        cdouble ceil ceil_ celu celu_ cfloat chain_matmul channel_shuffle cholesky cholesky_inverse
        cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone
        column_stack combinations complex complex128 complex64 concat concatenate conj conj_physical
        constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        copysign corrcoef cos cos_ cosh cosh_ cosine_embedding_loss cosine_similarity count_nonzero
        cov cross cross_entropy ctc_loss cuda cummax cummin cumprod cumsum cumulative_prod
        cumulative_sum cumulative_trapezoid custom_function custom_gradient data deg2rad deg2rad_
        det detach detach_ detach_copy devices diag diag_embed diagflat diagonal diagonal_copy
        diagonal_scatter diff digamma dist distributed distributions div divide dot double dropout
        dsplit dstack e einsum elu embedding empty empty_like empty_permuted empty_strided
        enable_grad eq equal erf erf_ erfc erfc_ erfinv errors exp exp2 exp2_ exp_ expand_copy
        expand_dims explain expm1 expm1_ eye feature_alpha_dropout fft fill fill_ finfo fix fix_
        flatten flip fliplr flipud float float16 float32 float64 float8_e4m3 float8_e5m2 float_power
        floor floor_ floor_divide fmax fmin fmod frac frac_ frexp from_dlpack from_numpy full
        full_like func gather gcd gcd_ ge gelu geqrf ger get_device get_rng_state glu grad gradient
        greater greater_equal grid_sampler_2d grid_sampler_3d group_norm gt half hamming_window
        hann_window hardshrink hardsigmoid hardswish hardtanh hash_tensor heaviside
        hinge_embedding_loss histc histogram histogramdd hsplit hstack hub huber_loss hypot i0 i0_
        igamma igammac iinfo imag index_add index_copy index_fill index_put index_put_ index_reduce
        index_select inf inference_mode initial_seed inner instance_norm int int16 int32 int64 int8
        inverse is_complex is_floating_point is_grad_enabled is_nonzero is_same_size is_signed
        is_tensor isclose isdtype isfinite isin isinf isnan isneginf isposinf isreal istft jit
        kaiser_window kl_div knobs kron kthvalue l1_loss layer_norm lcm lcm_ ldexp ldexp_ le
        leaky_relu lerp less less_equal lgamma linalg linear linspace llm load load_plan log log10
        log10_ log1p log1p_ log2 log2_ log_ log_softmax logaddexp logaddexp2 logcumsumexp logdet
        logical_and logical_not logical_or logical_xor logit logit_ logsigmoid logspace logsumexp
        long lt lu lu_solve lu_unpack manual_seed margin_ranking_loss masked masked_fill
        masked_scatter masked_select matmul matrix_exp matrix_power matrix_transpose max max_pool1d
        max_pool2d max_pool3d maximum mean median meshgrid min minimum mish mm mode moveaxis movedim
        mse_loss msort mul multinomial multiply mv mvlgamma nan nan_to_num nan_to_num_ nanmean
        nanmedian nanquantile nansum narrow narrow_copy ne neg neg_ negative negative_ newaxis
        nextafter nll_loss nn no_grad nonzero nonzero_static norm normal normalize not_equal numel
        one_hot ones ones_like onnx optim ormqr outer pad pairwise_distance pca_lowrank pdist
        permute permute_copy permute_dims pi pinverse pixel_shuffle pixel_unshuffle poisson
        poisson_nll_loss polar polygamma positive pow prelu prepare prepare_batch prod profile
        progress promote_types put qr quantile rad2deg rad2deg_ rand rand_like randint randint_like
        randn randn_like randperm range ravel real realize realize_batch reciprocal reciprocal_
        register_custom_function register_device relu relu6 relu_ remainder renorm repeat
        repeat_interleave reshape resize_as_ resolve_conj resolve_neg result_type rms_norm roll
        rot90 round round_ row_stack rrelu rsqrt rsqrt_ rsub save scalar_tensor
        scaled_dot_product_attention scan scatter scatter_add scatter_reduce searchsorted select
        select_copy select_scatter selu selu_ set_grad_enabled set_rng_state set_threads sgn short
        sigmoid sigmoid_ sign signal signbit silu sin sin_ sinc sinc_ sinh sinh_ slice_scatter
        slogdet smooth_l1_loss softmax softplus softsign sort special split split_copy
        split_with_sizes split_with_sizes_copy sqrt sqrt_ square square_ squeeze squeeze_copy stack
        std std_mean stft sub subtract sum svd svd_lowrank swapaxes swapdims t t_copy take
        take_along_axis take_along_dim tan tan_ tanh tanh_ tensor tensor_split tensordot testing
        threshold threshold_ tile timing topk torch trace transpose transpose_copy trapezoid trapz
        triangular_solve tril tril_indices triplet_margin_loss triu triu_indices true_divide trunc
        trunc_ uint16 uint32 uint64 uint8 unbind unbind_copy unflatten unfold_copy unique unique_all
        unique_consecutive unique_counts unique_inverse unique_values unravel_index unsafe_chunk
        unsafe_split unsqueeze unsqueeze_copy unstack utils value_and_grad vander var var_mean vdot
        vecdot view_as_complex view_as_real view_copy vsplit vstack where xlogy xlogy_ zero_ zeros
        zeros_like
    """,
    "svod.Tensor": """
        H T abs abs_ absolute absolute_ acos acos_ acosh acosh_ adaptive_avg_pool1d
        adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_ addmm addmm_
        addmv addmv_ addr addr_ adjoint all allclose amax amin aminmax angle any arange arccos
        arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_
        arctanh arctanh_ argmax argmin argsort argwhere array_view as_strided as_strided_scatter
        asin asin_ asinh asinh_ assign astype atan atan2 atan2_ atan_ atanh atanh_ avg_pool1d
        avg_pool2d avg_pool3d backward baddbmm baddbmm_ batch_norm become bernoulli bernoulli_
        bfloat16 binary_cross_entropy binary_cross_entropy_with_logits bincount bitcast bitwise_and
        bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or
        bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm bool
        broadcast_to byte cast cat cauchy_ cdouble ceil ceil_ celu celu_ cfloat channel_shuffle char
        cholesky cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min
        clamp_min_ clip clip_ clone conj conj_physical contiguous conv1d conv2d conv3d
        conv_transpose1d conv_transpose2d conv_transpose3d copy_ copyin copysign copysign_ corrcoef
        cos cos_ cosh cosh_ cosine_embedding_loss cosine_similarity count_nonzero cov cpu cross
        cross_entropy cuda cummax cummin cumprod cumprod_ cumsum cumsum_ data deg2rad deg2rad_ det
        detach detach_ device diag diag_embed diagflat diagonal diagonal_scatter diff digamma
        digamma_ dim dist div div_ divide divide_ dot double dropout dsplit dtype element_size elu
        elu_ embedding empty eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_
        expand expand_as expm1 expm1_ exponential_ eye fill_ fill_diagonal_ fix fix_ flatten flip
        fliplr flipud float float_power float_power_ floor floor_ floor_divide floor_divide_ fmax
        fmin fmod fmod_ frac frac_ frexp from_dlpack from_numpy full full_like gather
        gaussian_nll_loss gcd gcd_ ge ge_ gelu geometric_ geqrf ger get_device glu grad graph
        greater greater_ greater_equal greater_equal_ group_norm gt gt_ half hardshrink hardsigmoid
        hardswish hardtanh hardtanh_ hash_tensor heaviside heaviside_ hinge_embedding_loss histc
        histogram hsplit huber_loss hypot hypot_ i0 i0_ i0e i1 i1e igamma igamma_ igammac igammac_
        imag index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_
        index_reduce index_reduce_ index_select inner instance_norm int inverse is_complex
        is_contiguous is_cpu is_cuda is_floating_point is_leaf is_nonzero is_realized is_same_size
        is_signed isclose isfinite isinf isnan isneginf isposinf isreal istft item itemsize kl_div
        kron kthvalue l1_loss layer_norm layernorm lcm lcm_ ldexp ldexp_ le le_ leaky_relu
        leaky_relu_ lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_ linear linspace
        local_response_norm log log10 log10_ log1p log1p_ log2 log2_ log_ log_normal_ log_softmax
        logaddexp logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not logical_not_
        logical_or logical_or_ logical_xor logical_xor_ logit logit_ logsigmoid logsumexp long lt
        lt_ lu lu_solve mH mT manual_seed margin_ranking_loss masked_fill masked_fill_
        masked_scatter masked_scatter_ masked_select matmul matrix_exp matrix_power max max_pool1d
        max_pool2d max_pool3d maximum mean median min minimum mish mm mode moveaxis movedim mse_loss
        msort mul mul_ multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
        multinomial multiply multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean
        nanmedian nanquantile nansum narrow narrow_copy nbytes ndim ndimension ne ne_ neg neg_
        negative negative_ nelement new_empty new_empty_strided new_full new_ones new_tensor
        new_zeros nextafter nextafter_ nll_loss nonzero nonzero_static norm normal_ normalize
        not_equal not_equal_ numel numpy one_hot ones ones_like ormqr outer pad pairwise_distance
        permute pinverse pixel_shuffle pixel_unshuffle poisson_nll_loss polygamma polygamma_
        positive pow pow_ prelu prepare prod put put_ qr quantile quick_gelu rad2deg rad2deg_ rand
        rand_like randint randn randn_like random_ randperm ravel real realize reciprocal
        reciprocal_ register_hook register_post_accumulate_grad_hook relu relu6 relu_ remainder
        remainder_ renorm renorm_ repeat repeat_interleave requires_grad requires_grad_ reshape
        reshape_as resize resize_ resize_as resize_as_ resolve_conj resolve_neg retain_grad
        retains_grad rms_norm roll rot90 round round_ rsqrt rsqrt_ rsub scaled_dot_product_attention
        scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ searchsorted select
        select_scatter selu selu_ sgn sgn_ shape shard short shrink sigmoid sigmoid_ sign sign_
        signbit silu silu_ sin sin_ sinc sinc_ sinh sinh_ size slice_scatter slogdet smooth_l1_loss
        soft_margin_loss softmax softmin softplus softshrink softsign sort split split_with_sizes
        sqrt sqrt_ square square_ squeeze squeeze_ stack standardize std std_mean stft sub sub_
        subtract subtract_ sum sum_to_size svd swapaxes swapaxes_ swapdims swapdims_ swish t t_ take
        take_along_dim tan tan_ tanh tanh_ tanhshrink tensor_split tensordot threshold threshold_
        tile to to_device tolist topk trace transpose transpose_ triangular_solve tril tril_
        triplet_margin_loss triu triu_ true_divide true_divide_ trunc trunc_ type type_as unbind
        unflatten unfold uniform_ unique unique_consecutive unsafe_chunk unsafe_split unsqueeze
        unsqueeze_ uop var var_mean vdot vecdot view view_as vsplit where xlogy xlogy_ zero_ zeros
        zeros_like
    """,
    "svod.nn": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss
        AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d
        AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU
        CTCLoss ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d
        ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
        CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss Dropout Dropout1d Dropout2d Dropout3d
        ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d
        FractionalMaxPool3d Function GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink
        Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d
        InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell
        LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
        LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d
        LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear LocalResponseNorm
        LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d
        MaxUnpool2d MaxUnpool3d Mish Module ModuleDict ModuleList MultiLabelMarginLoss
        MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss PReLU PairwiseDistance
        Parameter ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN
        RNNCell RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d
        ReplicationPad2d ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss
        Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold Transformer
        TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
        TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample
        UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d from_torch functional
        inference init optim state utils
    """,
    "svod.nn.functional": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices
        adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d
        avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
        binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity
        cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding
        embedding_bag feature_alpha_dropout fold fractional_max_pool2d
        fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices
        gaussian_nll_loss gelu glu grid_sample group_norm gumbel_softmax hardshrink hardsigmoid
        hardswish hardtanh hardtanh_ hinge_embedding_loss huber_loss instance_norm interpolate
        kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear linear_cross_entropy
        local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss
        max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
        max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss
        multi_head_attention_forward multi_margin_loss multilabel_margin_loss
        multilabel_soft_margin_loss nll_loss normalize one_hot pad pairwise_distance pdist
        pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu rrelu_
        scaled_dot_product_attention selu selu_ sigmoid silu smooth_l1_loss soft_margin_loss softmax
        softmin softplus softshrink softsign tanh tanhshrink threshold threshold_
        triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear
        upsample_nearest
    """,
    "svod.nn.init": """
        calculate_gain constant_ copy_ dirac_ eye_ fans kaiming_normal_ kaiming_uniform_ normal_
        ones_ orthogonal_ sparse_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_
    """,
    "svod.nn.utils": """
        clip_grad_norm_ clip_grad_value_ parameters_to_vector parametrizations parametrize
        remove_spectral_norm remove_weight_norm rnn spectral_norm vector_to_parameters weight_norm
    """,
    "svod.nn.utils.parametrizations": """
        spectral_norm weight_norm
    """,
    "svod.nn.utils.parametrize": """
        ParametrizationList is_parametrized register_parametrization remove_parametrizations
    """,
    "svod.nn.utils.rnn": """
        PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence
        unpad_sequence
    """,
    "svod.optim": """
        ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax ChainedScheduler ConstantLR
        CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LAMB LBFGS LRScheduler
        LambdaLR LinearLR Lion MultiStepLR MultiplicativeLR Muon NAdam OneCycleLR Optimizer
        PolynomialLR RAdam RMSprop ReduceLROnPlateau Rprop SGD SequentialLR StepLR WarmupCosineLR
        clip_grad_norm_ clip_grad_value_ lr_scheduler swa_utils
    """,
    "svod.optim.lr_scheduler": """
        ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR
        ExponentialLR LRScheduler LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR
        PolynomialLR ReduceLROnPlateau SequentialLR StepLR WarmupCosineLR
    """,
    "svod.optim.swa_utils": """
        AveragedModel SWALR get_ema_avg_fn get_ema_multi_avg_fn get_swa_avg_fn get_swa_multi_avg_fn
        update_bn
    """,
    "svod.linalg": """
        cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product
        inv inv_ex lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm
        matrix_power matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve
        solve_ex solve_triangular svd svdvals tensordot tensorinv tensorsolve trace vander vecdot
        vector_norm
    """,
    "svod.fft": """
        fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2
        ihfftn irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn
    """,
    "svod.special": """
        bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit
        expm1 gammainc gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e
        laguerre_polynomial_l legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp
        modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln
        ndtr ndtri polygamma psi round scaled_modified_bessel_k0 scaled_modified_bessel_k1
        shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w sinc softmax spherical_bessel_j0 xlog1py xlogy zeta
    """,
    "svod.masked": """
        amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median norm
        normalize prod softmax softmin std sum var
    """,
    "svod.signal": """
        windows
    """,
    "svod.signal.windows": """
        bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann
        kaiser nuttall
    """,
    "svod.autograd": """
        Function GradcheckError GradientError backward enable_grad functional grad gradcheck
        gradgradcheck inference_mode is_grad_enabled no_grad once_differentiable set_grad_enabled
    """,
    "svod.autograd.functional": """
        hessian hvp jacobian jvp vhp vjp
    """,
    "svod.func": """
        grad grad_and_value hessian jacfwd jacrev jvp linearize vjp vmap
    """,
    "svod.data": """
        BatchSampler ConcatDataset DataLoader Dataset IterableDataset RandomSampler Sampler
        SequentialSampler Subset SubsetRandomSampler TensorDataset WeightedRandomSampler
        default_collate get_worker_info random_split
    """,
    "svod.distributions": """
        Bernoulli Beta Binomial Categorical Cauchy Dirichlet Distribution Exponential Gamma
        Geometric Gumbel HalfNormal Independent Laplace LogNormal MultivariateNormal Normal
        OneHotCategorical Poisson Uniform kl_divergence
    """,
    "svod.distributed": """
        BatchesOfRank CheckpointError DataParallel Experts Link Mesh Pipeline Placement Report
        Transfer checkpoints expert_parallel from_own_rows layout_of load_checkpoint mesh own_rows
        placement save_checkpoint shard_module tensor_parallel transfers zero
    """,
    "svod.onnx": """
        ExecutionMode GraphOptimizationLevel Host IOBinding InferenceSession Model OnnxError
        OrtValue RunOptions SessionOptions UnsupportedError Value backend export
        get_available_providers get_device host load operator texts
    """,
    "svod.torch": """
        Options Report backend from_module import_program load_checkpoint report
    """,
    "svod.hub": """
        HubError HubModel load
    """,
    "svod.llm": """
        LanguageModel ModelFileError Piece RequestError Sampling UnknownArchitecture grammar load
        quantize
    """,
    "svod.llm.grammar": """
        Form grammar_form json_form regex_form schema_form
    """,
    "svod.llm.quantize": """
        QuantisedModel TensorCost quantize
    """,
    "svod.cuda": """
        device_count is_available
    """,
    "svod.testing": """
        TOLERANCES assert_close gradcheck
    """,
    "svod.errors": """
        AllocationError ArgumentError BatchOutputMismatch BufferNotFound CacheError CompileError
        ComplexOperand ConfigError CreateProgramError DTypeError DeviceError EmptySchedule
        ExecutionError GraphError IndexRangeError IndexingError LinAlgError PlanFormatError
        RangeError RenderError RewriteLoopError ShapeError SvodDeprecationWarning SvodError
        SvodWarning UnsupportedError UntrustedPlanError VariableError VerifyError WriteError
    """,
    "svod.timing": """
        Span clear span spans totals
    """,
    "svod.utils": """
        data
    """,
}
