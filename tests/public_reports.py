"""The public fault reports that the core answers for (areas signature, compile, pytest, timing, triton), and what holds each.

A report is held by the tests that are named, or a sentence says why it does not apply here. ``test_public_reports`` checks that
every report is here and every test there. Those in tests/gpu need a GPU.
"""

from __future__ import annotations

AREAS = {
    "CMP": (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31),
    "PYT": (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31),
    "SIG": (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29),
    "TIM": (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23),
    "TRI": (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21),
}

_STARTERS = "tests/unit/test_reports_signature.py::test_"
_SIGNATURE = "tests/unit/test_signature.py::test_"
_CUDA = "tests/unit/test_build_cuda.py::test_"
_CACHE = "tests/unit/test_build_cache.py::test_"
_RUNS = "tests/plugin/test_reports.py::test_"
_COLLECTION = "tests/plugin/test_collection.py::test_"
_RECORDS = "tests/plugin/test_records.py::test_"
_GPU = "tests/gpu/test_gpu_reports.py::test_"
_GPU_SIGNATURE = "tests/gpu/test_gpu_signature.py::test_"
_GPU_RUNS = "tests/gpu/test_gpu_runs.py::test_"
_GPU_ISOLATION = "tests/gpu/test_gpu_isolation.py::test_"
_GPU_TIMING = "tests/gpu/test_gpu_timing.py::test_"

REPORTS: dict[str, tuple[str, ...] | str] = {
    # signatures, sizes, directions and inputs
    "SIG-01": (
        f"{_STARTERS}a_float_by_value_is_given_in_a_case_and_reaches_c_as_a_float",
        f"{_SIGNATURE}a_parameter_has_its_type_and_name",
        "tests/unit/test_cases.py::test_dims_of_the_command_line",
    ),
    "SIG-03": (
        f"{_STARTERS}a_result_that_is_read_too_has_its_start_value_before_every_call",
        f"{_GPU_SIGNATURE}what_is_read_and_written_has_its_start_value_before_every_timed_call",
    ),
    "SIG-05": (
        f"{_STARTERS}a_reference_that_writes_in_place_tells_inputs_without_const_from_outputs",
        "tests/unit/test_directions.py::test_an_input_without_const_is_an_input_when_the_reference_returns_the_output",
    ),
    "SIG-07": (
        f"{_STARTERS}every_pointer_has_the_size_that_the_reference_gives_it",
        f"{_STARTERS}a_guessed_size_that_is_too_small_is_found_and_named",
    ),
    "SIG-09": (f"{_STARTERS}every_pointer_has_the_size_that_the_reference_gives_it",),
    "SIG-11": (
        f"{_STARTERS}indices_are_small_unless_declared_and_one_out_of_range_is_no_fault_of_the_kernel",
        f"{_GPU_SIGNATURE}an_index_out_of_range_is_laid_to_the_inputs_and_costs_one_item",
    ),
    "SIG-13": (f"{_STARTERS}a_declared_start_value_takes_the_place_of_the_poison",),
    # a kernel that writes the constant that is right in every trial is a weak test, which is not found yet
    "SIG-15": (f"{_STARTERS}a_kernel_that_does_nothing_is_found_where_zero_is_the_right_answer",),
    "SIG-17": (
        f"{_STARTERS}unsigned_32_bits_are_made_and_compared_through_64",
        "tests/unit/test_compare.py::test_uint32_above_2_to_the_31_compares_with_an_int64_reference_and_prints_unsigned",
    ),
    "SIG-19": (
        f"{_STARTERS}one_reference_answers_to_both_starters_of_a_challenge",
        "tests/unit/test_binding.py::test_names_bind_first_then_names_in_another_case_then_order",
    ),
    "SIG-21": (f"{_STARTERS}a_challenge_class_is_a_reference",),
    "SIG-23": (
        f"{_STARTERS}a_challenge_class_is_a_reference",
        f"{_STARTERS}descriptions_of_tensors_become_tensors_of_their_distribution",
    ),
    "SIG-25": (
        f"{_RUNS}a_file_that_only_declares_solve_is_passed_over_beside_one_that_defines_it",
        f"{_SIGNATURE}a_helper_file_has_no_entry",
        f"{_SIGNATURE}the_live_definition_is_found_past",
    ),
    "SIG-27": (f"{_SIGNATURE}a_parameter_has_its_type_and_name", f"{_SIGNATURE}a_public_starter_is_parsed"),
    "SIG-29": (
        f"{_STARTERS}one_reference_answers_to_both_starters_of_a_challenge",
        f"{_STARTERS}a_solve_alone_says_which_reference_it_needs",
    ),
    # compilers, caches and libraries
    "CMP-01": (f"{_GPU}a_library_for_another_gpu_says_so",),
    "CMP-03": (
        f"{_RUNS}a_toolkit_that_cannot_build_is_one_line_and_triton_runs",
        f"{_CUDA}a_known_failure_is_condensed_to_its_cause_and_remedy",
    ),
    "CMP-05": (
        f"{_GPU}instructions_of_one_arch_are_built_by_default_and_otherwise_hinted_at",
        f"{_CUDA}a_warp_group_instruction_on_plain_sm_90_is_answered_with_the_arch_it_needs",
    ),
    "CMP-07": (
        f"{_RUNS}a_toolkit_that_cannot_build_is_one_line_and_triton_runs",
        f"{_CUDA}a_known_failure_is_condensed_to_its_cause_and_remedy",
    ),
    # a driver older than the toolkit can't be had at will: what avoids its error is held, and that it is foreseen
    "CMP-09": (
        f"{_GPU}machine_code_for_this_very_gpu_is_built_and_nothing_is_left_to_the_driver",
        "tests/unit/test_toolchain.py::test_gencode_names_the_real_arch_and_embeds_no_ptx",
        "tests/unit/test_preflight.py::test_a_toolkit_newer_than_the_driver_is_found_by_version",
    ),
    "CMP-11": (
        f"{_GPU}any_path_compiles_and_loads",
        f"{_GPU_RUNS}a_path_of_other_letters_and_spaces_is_run_by_its_node_id",
        f"{_CUDA}any_folder_and_file_name_builds_and_errors_show_it",
    ),
    "CMP-13": (
        f"{_GPU}any_path_compiles_and_loads",
        f"{_GPU_RUNS}a_path_of_other_letters_and_spaces_is_run_by_its_node_id",
        f"{_CUDA}any_folder_and_file_name_builds_and_errors_show_it",
    ),
    "CMP-15": (
        f"{_GPU}a_byte_order_mark_does_no_harm",
        f"{_CUDA}bytes_that_are_no_plain_utf8_compile",
        "tests/unit/test_reference_module.py::test_a_byte_order_mark_and_a_stale_pyc_do_no_harm",
    ),
    "CMP-17": (f"{_SIGNATURE}bytes_of_any_encoding_and_line_ending_are_read", f"{_CUDA}bytes_that_are_no_plain_utf8_compile"),
    "CMP-19": (
        f"{_GPU}an_edited_kernel_is_the_one_that_runs",
        f"{_CUDA}a_changed_source_or_header_or_flag_is_built_again_and_an_unchanged_one_is_not",
    ),
    "CMP-21": (f"{_GPU_ISOLATION}kernels_and_helpers_of_one_name_stay_apart",),
    "CMP-23": (
        f"{_GPU_ISOLATION}kernels_and_helpers_of_one_name_stay_apart",
        f"{_CUDA}a_helper_named_as_one_of_libc_is_the_one_that_is_called",
    ),
    "CMP-25": (f"{_CUDA}a_build_that_failed_is_tried_again", f"{_CACHE}a_failure_is_not_kept"),
    "CMP-27": (
        f"{_CACHE}a_build_that_was_killed_blocks_nobody",
        f"{_CACHE}a_half_written_or_damaged_entry_is_built_again",
        f"{_CUDA}a_killed_pytest_leaves_no_compiler_behind",
    ),
    "CMP-29": (
        f"{_RUNS}a_solve_without_c_linkage_is_collected_and_fails_with_the_words_to_add",
        f"{_SIGNATURE}a_missing_extern_c_is_told_with_the_very_words_to_add",
    ),
    "CMP-31": (
        f"{_RUNS}without_a_toolkit_cuda_kernels_are_skipped_with_every_place_and_triton_runs",
        "tests/unit/test_toolchain.py::test_nvcc_is_found_under_usr_local_when_path_and_cuda_home_lead_nowhere",
        "tests/unit/test_toolchain.py::test_every_place_that_was_tried_is_named_when_there_is_no_nvcc",
    ),
    # Triton
    "TRI-01": (f"{_GPU}tuning_in_place_is_found_and_its_remedy_named",),
    "TRI-03": (f"{_GPU}a_result_that_is_cleared_in_tuning_only_accumulates",),
    "TRI-05": (
        f"{_GPU}an_edited_kernel_is_the_one_that_runs",
        "tests/unit/test_build_triton.py::test_each_version_is_compiled_anew_even_when_only_a_module_constant_changed",
    ),
    "TRI-07": (f"{_RUNS}a_kernel_is_a_real_file_that_stays_while_it_is_in_use",),
    "TRI-09": (
        f"{_GPU}too_much_shared_memory_is_named_with_what_was_asked_for_and_the_limit",
        "tests/unit/test_build_triton.py::test_a_config_that_does_not_fit_is_noted_and_one_that_is_the_only_one_is_refused",
    ),
    "TRI-11": (
        f"{_GPU_RUNS}the_device_decides_whatever_the_shell_says_of_the_interpreter",
        f"{_RUNS}what_the_interpreter_lacks_is_a_skip_that_says_so",
    ),
    "TRI-13": (f"{_RUNS}what_the_interpreter_lacks_is_a_skip_that_says_so",),
    "TRI-15": (
        f"{_GPU}offsets_beyond_two_to_the_31_cost_at_most_the_kernel_that_gets_them_wrong",
        "tests/unit/test_picture.py::test_two_to_the_31_elements_need_no_mask",
    ),
    "TRI-17": (f"{_GPU}the_second_of_two_gpus_is_the_only_one_a_kernel_sees",),
    "TRI-19": (f"{_GPU_RUNS}files_of_one_name_have_their_own_module_and_reference",),
    "TRI-21": (f"{_GPU}tuning_has_a_limit_of_its_own_and_is_named",),
    # pytest and its other plugins
    "PYT-01": (f"{_COLLECTION}one_stem_in_two_folders", f"{_GPU_RUNS}files_of_one_name_have_their_own_module_and_reference"),
    "PYT-03": (f"{_COLLECTION}ids_are_the_same_in_every_worker",),
    "PYT-05": ("tests/plugin/test_benchmark.py::test_under_xdist_each_kernel_is_timed_once_and_it_is_said",),
    "PYT-07": "A gate that was asked for and measured nothing is part of the gate, which is not there yet.",
    "PYT-09": (f"{_RECORDS}the_same_with_and_without_xdist_and_with_benchmarks_disabled",),
    "PYT-11": (
        f"{_RECORDS}junit_holds_the_record_as_json_with_numbers_as_numbers",
        f"{_RECORDS}a_report_log_holds_numbers_as_numbers",
    ),
    "PYT-13": (
        f"{_GPU_ISOLATION}a_kernel_that_hangs_is_killed_in_time",
        "tests/unit/test_isolation.py::test_a_kernel_that_hangs_and_takes_no_signals_is_killed",
    ),
    "PYT-15": (f"{_GPU_RUNS}eight_crashing_items_among_thirty_fail_alone",),
    "PYT-17": (
        f"{_GPU_RUNS}an_item_in_a_process_forked_off_pytest_has_its_result",
        "tests/plugin/test_checks.py::test_a_process_forked_off_pytest_does_not_use_its_parents_children",
    ),
    "PYT-19": (f"{_GPU_ISOLATION}memory_stays_level_over_many_items",),
    "PYT-21": (f"{_COLLECTION}collection_imports_and_runs_nothing_of_the_users",),
    "PYT-23": (
        f"{_COLLECTION}selection",
        f"{_COLLECTION}paths_with_spaces_and_other_alphabets",
        f"{_COLLECTION}last_failed_selects_what_failed",
    ),
    "PYT-25": (
        f"{_COLLECTION}norecursedirs_hold_and_naming_overcomes_them",
        f"{_COLLECTION}run_folders_and_zoos_are_not_collected_unless_named",
    ),
    "PYT-27": (
        "tests/plugin/test_startup.py::test_a_broken_torch_does_not_keep_the_plugin_from_loading",
        f"{_RUNS}a_broken_torch_costs_the_kernel_items_only_and_is_their_reason",
    ),
    "PYT-29": (
        f"{_GPU_RUNS}files_of_one_name_have_their_own_module_and_reference",
        "tests/plugin/test_distributed.py::test_n_auto_is_the_number_of_gpus_where_only_kernels_are_named",
    ),
    "PYT-31": (
        "tests/unit/test_device.py::test_conditions_are_those_of_the_card_with_that_uuid_and_not_of_nvmls_number",
        "tests/unit/test_device.py::test_a_card_that_nvml_does_not_know_has_no_conditions_rather_than_anothers",
        f"{_GPU_TIMING}a_record_tells_how_the_time_was_taken",
    ),
    # time
    "TIM-01": (f"{_GPU_TIMING}more_warm_up_gives_the_same_time",),
    "TIM-03": (f"{_GPU_TIMING}a_copy_never_seems_faster_than_the_memory",),
    "TIM-05": (f"{_GPU_TIMING}an_empty_and_a_full_triton_cache_give_one_time",),
    "TIM-07": (f"{_GPU_TIMING}work_on_a_stream_of_its_own_is_timed_in_full_or_refused_as_such",),
    "TIM-09": (
        f"{_GPU_TIMING}a_kernel_that_works_on_every_eighth_call_only_is_wrong",
        f"{_GPU_TIMING}a_kernel_that_stops_working_while_it_is_timed_has_no_time",
    ),
    "TIM-11": (f"{_GPU_TIMING}an_answer_that_is_kept_for_a_few_elements_of_its_input_is_found",),
    "TIM-13": (f"{_GPU_TIMING}persisting_lines_do_not_survive_the_flush",),
    "TIM-15": (f"{_GPU_TIMING}a_patched_clock_is_not_the_one_that_is_read",),
    "TIM-17": (f"{_GPU_TIMING}ten_medians_of_a_tiny_kernel_agree",),
    "TIM-19": (f"{_GPU_TIMING}timing_never_uses_zeros",),
    "TIM-21": (
        f"{_GPU_TIMING}two_copies_of_one_kernel_tie",
        "tests/unit/test_statistics.py::test_sampling_goes_on_until_the_interval_is_narrow_and_stops_at_the_tick",
    ),
    "TIM-23": (f"{_GPU_TIMING}slow_first_calls_do_not_lower_the_number_of_samples",),
}
