"""The tests that hold each line of docs/security.md about an origin, by the origin's heading and the line's first cell."""

from typing import Final

TESTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "A device plugin": {
        "change or use up devices of another resource or vendor": (
            "tests/robustness/fuzz/test_plugin_answers.py::test_any_registration",
            "tests/unit/node_agent/devicemanager/test_shared_devices.py::TestParents",
            "tests/unit/node_agent/deviceplugin/test_built_in.py::test_a_plugin_that_takes_over_the_path_of_an_own_one",
        ),
        "crash the agent, or stop another plugin or pod, by any message or silence": (
            "tests/robustness/fuzz/test_plugin_answers.py::test_any_answers_to_an_agent_that_serves_others",
            "tests/integration/agent/test_pods.py::test_a_hanging_plugin_blocks_no_other",
            "tests/unit/node_agent/deviceplugin/test_plugin_watcher.py::test_every_name_is_asked_and_reported_as_text",
            "tests/unit/node_agent/deviceplugin/test_plugin_watcher.py::test_what_is_invalid_is_answered_once_and_reported_with_the_reason",
            "tests/robustness/fuzz/test_sizes.py::test_memory_has_a_bound",
        ),
        "give a pod a device file that another pod holds": (
            "tests/unit/node_agent/runtime/test_backend.py::test_files_count_from_the_creation_of_their_container_on",
            "tests/unit/node_agent/runtime/test_backend.py::test_a_file_that_another_pod_holds_is_not_given",
        ),
        "start a container without its device, by an invalid response": (
            "tests/e2e/real_node/test_bad_answers.py::test_it_is_reported_and_harms_nobody",
        ),
        "have two device IDs confused, or write control characters": (
            "tests/unit/api/test_device_ids.py::test_no_two_ids_are_shown_alike",
            "tests/unit/node_agent/deviceplugin/test_any_device_id.py::test_plugin_checkpoint_and_monitors_get_the_originals_and_the_api_ids_that_it_accepts",
        ),
        "fill the agent's memory with devices": (
            "tests/integration/agent/test_resources.py::test_a_list_with_which_all_plugins_list_too_many_is_refused_whole",
            "tests/unit/node_agent/devicemanager/test_list_limit.py::test_memory_is_bounded_whatever_devices_are_made_of",
            "tests/unit/node_agent/devicemanager/test_list_limit_room.py::test_of_a_long_list_of_a_plugin_that_is_gone_only_claimed_devices_are_kept",
            "tests/unit/node_agent/devicemanager/test_list_limit_connections.py::test_no_more_is_kept_of_any_connections",
            "tests/unit/node_agent/lib/test_memory.py::test_it_is_asked_every_half_minute",
        ),
        "delay containers by physical devices to compare": (
            "tests/unit/node_agent/devicemanager/test_physical_devices.py::TestTooManyToCompare",
        ),
        "lose a refused list, or fill memory with it": (
            "tests/unit/node_agent/deviceplugin/test_refused_lists.py::test_it_is_taken_once_there_is_room_though_its_plugin_sent_it_once",
            "tests/unit/node_agent/deviceplugin/test_refused_lists.py::test_what_is_held_has_a_bound_for_each_domain_and_for_all",
            "tests/unit/node_agent/devicemanager/test_list_limit.py::test_a_short_list_is_never_refused",
        ),
        "fill memory with one device": (
            "tests/unit/node_agent/deviceplugin/test_codec.py::test_a_device_that_is_far_too_long_is_its_id_and_its_health",
            "tests/unit/node_agent/deviceplugin/test_codec.py::test_of_all_devices_together_so_many_numa_nodes_are_read",
            "tests/unit/node_agent/deviceplugin/test_plugin_calls.py::TestAllocate::test_a_response_has_a_bounded_size_and_so_many_entries",
            "tests/robustness/memory/kubelet_rows.py::plugin_lists",
        ),
        "fill memory with Allocate responses": (
            "tests/unit/node_agent/devicemanager/allocation/test_answer_limit.py::test_it_counts_by_domain_and_in_all",
            "tests/unit/node_agent/devicemanager/allocation/test_answer_limit.py::test_a_checkpoint_with_more_loses_the_rest_of_its_answers",
        ),
        "fill memory through the kubelet's checkpoint": (
            "tests/unit/node_agent/checkpoint/test_long_files.py::test_the_longest_responses_are_left_out_each_and_in_sum",
            "tests/unit/node_agent/kubelet/test_directory.py::test_a_file_without_end_is_not_read_to_its_end",
            "tests/unit/node_agent/runtime/test_kubelet_checkpoint.py::test_pod_resources_say_what_a_checkpoint_that_cannot_be_used_does_not",
            "tests/unit/node_agent/kubelet/test_reader.py::test_callers_that_come_during_a_reading_share_the_next_one",
            "tests/robustness/memory/kubelet_rows.py::kubelet_checkpoint",
        ),
        "hold the event loop through the kubelet's lists": (
            "tests/robustness/memory/kubelet_rows.py::kubelet_lists",
            "tests/robustness/memory/kubelet_rows.py::kubelet_lists_of_long_ids",
            "tests/unit/node_agent/kubelet/test_observer.py::test_sixty_thousand_devices_are_shown",
        ),
        "delay containers with endless lists": (
            "tests/unit/node_agent/deviceplugin/test_device_lists.py::TestDeviceLists::test_a_flood_is_read_slowly",
            "tests/unit/node_agent/deviceplugin/test_device_lists.py::test_long_lists_of_all_streams_take_turns_in_a_thread",
        ),
        "use up connections or descriptors": (
            "tests/unit/node_agent/deviceplugin/test_broken_connections.py::test_one_whose_streams_all_end_is_dialled_ever_later",
            "tests/unit/node_agent/deviceplugin/test_admission.py::test_a_name_that_registers_without_end_is_never_refused_and_keeps_few_connections",
            "tests/unit/node_agent/deviceplugin/test_host.py::test_connections_of_one_socket_have_a_limit",
            "tests/unit/node_agent/lib/test_grpc_server.py::test_connections_that_do_nothing_end",
            "tests/unit/node_agent/devicemanager/test_registration.py::TestConnections",
            "tests/unit/node_agent/deviceplugin/test_admission.py::test_a_plugin_that_hangs_takes_nobodys_place",
        ),
        "fill the log, the Lease or Events": (
            "tests/unit/node_agent/deviceplugin/test_rejections.py::test_changing_errors_do_not_fill_the_lease",
            "tests/unit/node_agent/deviceplugin/test_rejections.py::test_many_are_logged_in_sums",
            "tests/unit/common/test_paced_log.py::test_any_number_is_a_bounded_number_of_lines_which_account_for_all",
            "tests/unit/node_agent/deviceplugin/test_host.py::test_a_plugin_that_registers_again_and_again_costs_a_bounded_number_of_lines",
        ),
        "flood the API server": (
            "tests/unit/node_agent/kube/test_write_budget.py::test_one_object_has_twenty_writes_at_once_and_five_a_second",
            "tests/unit/node_agent/kube/test_write_budget.py::test_an_agent_has_forty_a_second_shared_fairly",
            "tests/unit/node_agent/devicemanager/test_flapping_devices.py::TestVeryManyAtOnce",
            "tests/integration/agent/test_plugin_gone.py::test_many_plugins_go_at_once_beside_one_that_serves_on",
        ),
        "take the names of other domains, or leave names behind": (
            "tests/unit/operator/requiredplugins/test_policy.py::test_a_node_has_64_names_the_oldest_first_and_takes_none_from_another",
            "tests/integration/operator/test_gone_nodedevices.py::test_what_has_been_gone_for_an_hour_is_deleted_and_the_rest_stays",
            "tests/robustness/names/test_invented_names.py::test_they_cost_a_bound_and_others_are_served",
            "tests/unit/operator/requiredplugins/test_policy.py::TestTheShareOfADomain::test_a_domain_that_comes_late_gets_a_place_at_once",
            "tests/unit/operator/requiredplugins/test_policy.py::TestTheShareOfADomain::test_any_number_of_invented_domains_displaces_one_name_a_minute",
            "tests/unit/node_agent/devicemanager/test_places.py::TestExchange::test_what_is_needed_stays",
            "tests/unit/node_agent/devicemanager/test_places.py::TestRoom::test_a_name_that_has_its_place_registers_again",
            "tests/unit/node_agent/deviceplugin/test_plugin_watcher.py::test_no_more_sockets_are_asked_than_the_limit",
        ),
        "delay the agent's start": ("tests/robustness/names/test_start_of_many.py::test_nobody_waits_for_it",),
    },
    "A DRA driver": {
        "claim another's device without a condition and an alert": (
            "tests/unit/node_agent/offered_twice/test_messages.py::test_more_than_a_nodedevice_can_list_are_not_counted",
        ),
        "hold the agent by CDI files": (
            "tests/unit/node_agent/offered_twice/test_host.py::test_deep_yaml_links_and_pipes_cost_no_other",
        ),
        "give a container another GPU by a stale CDI specification": (
            "tests/unit/node_agent/plugins/nvml/test_cdi_choice.py::test_by_another_way_where_the_specification_is_outdated",
        ),
        "end the agent, or hide another driver, by any slice": (
            "tests/unit/node_agent/dra/test_slices.py::test_whatever_text",
            "tests/integration/agent/test_resource_slices.py::test_what_slices_say_of_others_is_shown_apart",
            "tests/unit/node_agent/dra/test_slices.py::test_what_is_beyond_the_bounds_is_left_out_and_devices_are_counted",
            "tests/unit/node_agent/kube/test_large_objects.py::test_those_beyond_the_bound_come_without_what_is_large",
            "tests/unit/node_agent/dra/test_pools.py::test_attributes_are_kept_as_long_as_there_is_room",
            "tests/unit/node_agent/dra/test_observer.py::test_a_slice_whose_counters_have_no_room_is_not_read_until_a_list_with_some",
            "tests/robustness/memory/kubelet_rows.py::resource_slices",
        ),
        "take the room of another driver": (
            "tests/unit/node_agent/dra/test_pools.py::test_a_driver_has_so_many_slices_and_leaves_room_for_others",
            "tests/unit/node_agent/dra/test_served_names.py::test_pools_have_a_place_among_the_names_of_the_node",
            "tests/unit/node_agent/dra/test_served_names.py::test_a_driver_that_invents_pools_leaves_a_place_to_another",
            "tests/unit/node_agent/dra/test_served.py::test_what_is_gone_is_forgotten_with_its_object_unless_pods_hold_devices",
        ),
        "fill a NodeDevice": (
            "tests/unit/node_agent/dra/test_status.py::test_a_long_list_is_cut_and_counted_with_what_matters_in_it",
        ),
        "delay others by changes": (
            "tests/unit/node_agent/dra/test_observer.py::test_of_many_generations_a_few_are_decoded_and_the_last_one_counts",
            "tests/integration/agent/test_resource_slices.py::test_a_driver_without_pause_costs_its_share_of_writes_and_others_are_served",
        ),
        "appear as another node, driver or plugin": (
            "tests/unit/node_agent/dra/test_observer.py::test_a_slice_of_another_node_is_ignored_and_logged_once",
            "tests/unit/node_agent/dra/test_names.py::test_no_two_pools_have_one_name_and_each_fits_the_crd",
            "tests/unit/node_agent/dra/test_served_names.py::test_a_name_that_others_give_out_is_no_pools",
        ),
        "have devices of an invalid pool counted as free": (
            "tests/unit/node_agent/dra/test_status.py::test_a_pool_that_is_incomplete_or_has_a_device_twice_has_none_available",
        ),
        "invent devices of a claim": (
            "tests/unit/node_agent/kubelet/test_codec_claims.py::test_a_pod_and_a_node_have_a_bounded_number_of_rows",
            "tests/unit/node_agent/kubelet/test_codec_claims.py::test_what_no_device_can_have_is_left_out",
        ),
    },
    "A pod": {
        "open a device that it was not given, or in another mode": (
            "tests/e2e/real_node/test_devices.py::test_only_the_permitted_modes",
        ),
        "pass its device on before its processes end": (
            "tests/integration/agent/test_nri.py::test_a_container_that_the_runtime_leaves_out_of_its_list",
        ),
        "use the extender without a client certificate": (
            "tests/unit/operator/extender/test_server.py::test_only_clients_of_that_authority_are_answered",
            "tests/unit/operator/extender/test_server.py::test_only_clients_of_that_name_are_answered",
        ),
        "exclude the scheduler, or delay a bind by more than 2 s (30 s from the scheduler's address)": (
            "tests/unit/operator/extender/test_server.py::TestBounds",
            "tests/integration/extender/test_floods.py::test_a_flood_delays_a_bind_by_seconds_at_most",
            "tests/unit/operator/extender/test_admission.py::test_another_address_waits_for_its_turn_alone",
        ),
        "exclude probes or Prometheus": (
            "tests/unit/common/test_http_server.py::test_idle_connections_keep_nobody_out",
            "tests/unit/common/test_http_server.py::test_an_address_with_many_connections_closes_none_of_another",
        ),
        "read metrics with `metrics.authentication: token`": (
            "tests/integration/test_metrics_access.py::test_who_reads_metrics",
        ),
    },
    "A tenant": {
        "end a program or `kubectl nodedevice` by size or nesting of objects": (
            "tests/integration/test_deep_objects.py::test_agent_and_operator_go_on",
            "tests/integration/test_deep_objects.py::test_extender_goes_on",
            "tests/unit/operator/kube/test_pages.py::test_everything_comes_in_pages_of_a_bounded_length",
            "tests/unit/cli/test_bad_input.py::test_objects_that_are_nested_too_deep_end_nothing",
            "tests/robustness/memory/test_plugin.py::test_memory",
            "tests/unit/cli/test_api_answers.py::test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects",
        ),
        "start a container without its devices, or remove the required-plugins annotation": (
            "tests/e2e/real_node/test_fail_closed.py::test_no_container_starts_without_its_device",
            "tests/integration/operator/required_plugins/test_required_plugins.py::test_no_spelling_of_the_author_switches_it_off",
        ),
        "delay the scheduler or other pods by many containers": (
            "tests/unit/operator/extender/test_fleet_fits.py::TestAPodOfManyContainers",
            "tests/unit/node_agent/devicemanager/allocation/test_rehearsal.py::TestAPodOfManyContainers",
        ),
        "get devices as a false mirror of a static pod": (
            "tests/integration/agent/test_static_pods.py::test_a_tenant_gains_nothing_by_annotations",
            "tests/integration/agent/test_static_pods.py::test_where_nothing_is_injected_one_object_is_one_pod",
        ),
        "have parameters of claims stored or shown, or invent holders": (
            "tests/unit/node_agent/dra/test_claim.py::test_of_parameters_and_consumers_nothing_is_kept",
            "tests/unit/node_agent/dra/test_claim.py::test_of_what_is_too_long_no_more_is_read",
            "tests/unit/node_agent/dra/test_claims.py::test_many_claims_are_read_at_a_pace",
            "tests/unit/node_agent/dra/test_holdings.py::test_what_a_claim_says",
        ),
        "have its environment or mounts override the plugin's unseen": (
            "tests/unit/node_agent/runtime/test_backend.py::test_what_settings_of_the_pod_replace_is_logged_once_for_each_container",
        ),
        "stop the agent by environment or commands": (
            "tests/integration/agent/test_environments.py::test_environments_take_no_memory",
            "tests/unit/node_agent/nri/test_codec.py::test_of_a_container_no_environment_is_kept",
            "tests/largest/test_turns.py::test_no_turn_is_longer",
            "tests/unit/node_agent/devicemanager/test_expansion.py::test_a_word_without_an_end_is_read_once",
            "tests/unit/node_agent/runtime/test_gpu_environment.py::TestAContainerWithoutAGpu::test_with_more_variables_about_gpus_than_anybody_needs_is_refused",
        ),
        "get other devices or limits through NVIDIA's runtime (`nri`)": (
            "tests/e2e/real_node/test_pod_environment.py::test_nothing_of_it_counts",
            "tests/unit/node_agent/runtime/test_gpu_requests.py::TestVariables::test_without_an_allocation_add_nothing",
            "tests/e2e/real_node/test_pod_environment.py::test_of_pod_and_image_at_once_is_refused",
        ),
        "change directories of others through names or links": (
            "tests/unit/node_agent/plugins/nvml/test_container_directories.py::test_a_name_of_another_form_is_never_made",
            "tests/unit/node_agent/plugins/nvml/test_container_directories.py::test_links_that_a_container_left_are_not_followed",
            "tests/unit/node_agent/plugins/nvml/test_container_directories.py::test_whatever_a_container_leaves_is_removed",
        ),
        "stop the checkpoint by using up process IDs": (
            "tests/unit/node_agent/checkpoint/test_writer.py::TestFailuresBeforeAWrite::test_a_thread_that_cannot_be_started_is_tried_again",
        ),
        "get more multiprocessors, or other parts, by annotations": (
            "tests/unit/node_agent/plugins/nvml/test_vgpu.py::TestMultiprocessors::test_an_annotation_within_what_is_left",
            "tests/unit/node_agent/devicemanager/allocation/test_assignments.py::test_what_cannot_be_taken_is_planned_here",
            "tests/unit/node_agent/devicemanager/allocation/test_assignments.py::test_what_a_tenant_may_write",
        ),
        "be taken for the release by labels": (
            "tests/unit/cli/test_discover.py::test_no_pod_of_a_tenant_is_asked",
            "tests/hack/install/test_install.py::test_a_label_of_a_tenant_is_no_install",
        ),
        "free a device before its processes end, by a forced deletion": (
            "tests/e2e/real_node/test_devices.py::test_force_deleted_and_the_next_waits_for_the_same",
        ),
    },
    "The token of a node's agent": {
        "write objects of another node, cordons, or the operator's conditions": (
            "tests/integration/agent/test_admission.py::test_refused_with_a_sentence",
        ),
        "store another's entry in managedFields": (
            "tests/integration/agent/test_managed_fields.py::test_what_a_request_brings_is_refused",
            "tests/integration/agent/test_managed_fields.py::test_a_write_to_status_brings_none",
        ),
        "create a PodDevice or Event for a pod elsewhere": (
            "tests/integration/operator/pods/test_events.py::test_an_allocation_of_a_pod_on_another_node_is_refused",
            "tests/unit/operator/observability/test_recorder.py::test_an_agent_is_not_trusted_about_its_pods",
        ),
        "end the operator, or delay other nodes": (
            "tests/robustness/chaos/test_all_mad.py::test_all_gone_mad_at_once_cost_no_container_and_no_capacity",
            "tests/integration/operator/test_memory.py::test_objects_as_big_as_the_api_server_takes_cost_little",
            "tests/unit/operator/reconcile/test_flooding_node.py::test_changes_without_end_cost_a_bound",
            "tests/unit/operator/test_workqueue.py::TestHeavyNodes::test_one_that_changes_without_end_is_reconciled_as_often_as_it_can_pay_for",
        ),
        "delay Events about other nodes": (
            "tests/unit/operator/observability/test_recorder_limits.py::test_one_node_that_reports_without_end_keeps_no_other_waiting",
            "tests/unit/operator/observability/test_recorder_limits.py::test_of_one_node_a_few_hundred_are_posted_and_the_rest_is_counted",
        ),
        "delay a configuration's status by more than five seconds": (
            "tests/unit/operator/configs/test_controller.py::test_those_that_come_one_by_one_are_a_few_writes",
        ),
        "stop other names, or advertise names of Kubernetes or DRA": (
            "tests/integration/operator/required_plugins/test_required_plugins_bounds.py::test_one_token_stops_no_name_of_another_node",
            "tests/unit/operator/test_only_shown.py::test_nothing_comes_of_what_is_only_shown",
        ),
        "list ResourceClaims, or read Secrets": (
            "tests/chart/test_chart_rights.py::test_agent_cannot",
            "tests/chart/test_values.py::test_dra_is_observed_with_as_few_rights_as_it_needs",
            "tests/chart/test_chart_rights.py::test_rights_of_the_agent",
        ),
    },
    "Who may write NodeDeviceConfigs": {
        "name files outside `agents.allowedHostPaths`, or a library": (
            "tests/unit/node_agent/configs/test_effective.py::test_what_is_not_valid_is_refused_whole_with_the_remedy",
        ),
        "get these verbs by a namespace's roles": (
            "tests/chart/test_chart_rights.py::test_the_roles_of_namespaces_read_poddevices_and_nothing_else_of_ours",
        ),
        "hide exempt pods, or lose a mistyped key silently": (
            "tests/unit/node_agent/runtime/test_gpu_environment.py::TestAContainerWithoutAGpu::test_whose_pod_is_exempt",
            "tests/integration/crds/test_nodedeviceconfig_schema.py::test_to_one_that_does_not_an_agent_refuses_it",
        ),
        "stop or delay other plugins": (
            "tests/integration/agent/test_configs.py::test_a_path_that_is_not_allowed_is_refused_and_the_rest_runs_on",
            "tests/unit/node_agent/plugins/test_patterns.py::test_the_most_wildcards_against_the_longest_name_try_nothing_twice",
            "tests/unit/node_agent/plugins/generic/test_select_odd.py::test_a_pattern_of_more_files_than_fit",
        ),
        "fill the agent's memory, or take devices of another resource": (
            "tests/unit/node_agent/plugins/test_room.py::test_resources_of_any_number",
            "tests/robustness/memory/resource_rows.py::configured_resources",
        ),
        "delay containers or other devices": (
            "tests/unit/node_agent/devicemanager/test_physical_devices.py::TestTooManyToCompare::test_shared_ones_that_are_alike_count_once",
            "tests/unit/node_agent/plugins/generic/test_hanging.py::test_sysfs_is_never_read_in_the_loop",
            "tests/unit/node_agent/plugins/generic/test_faulty_device.py::test_a_faulty_device_affects_only_itself",
        ),
        "end an agent, or fill the object, by nesting or length": (
            "tests/integration/test_deep_objects.py::test_agent_and_operator_go_on",
            "tests/unit/node_agent/test_failing_tasks.py::test_a_plugin_that_fails_or_takes_no_settings_is_started_again_alone",
            "tests/integration/crds/test_config_sizes.py::test_a_spec_leaves_room_for_a_status",
        ),
    },
    "Who has nodedevice-cordon": {
        "change anything but cordons, or hide whose cordon it is": (
            "tests/chart/test_people.py::test_the_cordon_role_reaches_cordons_alone",
            "tests/chart/test_people.py::test_no_request_takes_away_whose_a_cordon_is",
        ),
        "leave no room for the agent's status": (
            "tests/chart/test_people.py::test_cordons_leave_room_for_the_agents_status",
            "tests/integration/crds/test_nodedevice_sizes.py::test_beside_any_cordons_status_has_room",
        ),
    },
    "The operator's token": {
        "write other fields of Nodes than extended resources, its taint and its labels": (
            "tests/integration/operator/test_admission.py::test_nothing_else_by_way_of_the_status",
        ),
        "remove a cordon, or delete a NodeDevice that is in use": (
            "tests/integration/operator/test_admission.py::test_and_nothing_else_of_a_node_device",
            "tests/integration/operator/test_admission.py::test_no_used_node_device_is_deleted",
        ),
        "store another's entry in managedFields": (
            "tests/integration/operator/test_managed_fields.py::test_what_a_request_brings_is_refused",
            "tests/integration/operator/test_admission.py::test_no_managed_fields_of_a_node",
        ),
        "change a pod, read Secrets, or create or delete pods": (
            "tests/chart/test_chart_rights.py::test_operator_patches_pods_with_at_most_the_mark",
            "tests/chart/test_chart_rights.py::test_operator_cannot",
        ),
    },
    "The extender's token": {
        "write other annotations or labels at a bind": (
            "tests/chart/test_scheduler_rights.py::test_the_choice_is_all_it_may_write_into_a_pod",
        ),
        "read Secrets, or change or delete pods": (
            "tests/chart/test_scheduler_rights.py::test_rights_of_the_extender_alone",
        ),
        "delay pods without parts": (
            "tests/chart/test_scheduler_rights.py::test_while_the_extender_is_away_its_pods_wait_and_others_never_notice",
        ),
    },
    "The network": {
        "have an agent flood the API server": (
            "tests/conformance/connection/test_watch_faults.py::test_a_fault_is_survived",
        ),
        "hide silence for more than 90 s": (
            "tests/unit/node_agent/kube/test_watches.py::test_a_silent_watch_is_stale_when_a_list_shows_what_it_did_not_bring",
            "tests/integration/operator/test_watchdog.py::test_a_frozen_watch_ends_the_process",
        ),
        "keep a dead agent alive, or withdraw devices of many live ones": (
            "tests/unit/operator/leases/test_agent_monitor.py::test_two_api_servers_of_different_age_keep_no_agent_alive",
            "tests/integration/operator/test_agents.py::test_many_together_are_no_fault_of_theirs",
        ),
        "keep an old or wrong capacity after the failure": (
            "tests/conformance/connection/test_watch_faults.py::test_a_fault_is_survived",
            "tests/robustness/chaos/test_chaos.py::test_capacity_is_right_whenever_it_is_calm",
        ),
        "write a secret or control characters into a log": (
            "tests/unit/test_secrets.py::test_no_secret_is_logged_or_printed",
            "tests/unit/test_secrets.py::test_what_an_install_prints",
        ),
        "have two operators write": (
            "tests/integration/operator/test_leaders.py::test_one_that_was_stopped_past_its_deadline_writes_nothing_more",
            "tests/unit/operator/leases/test_two_writers.py::test_no_order_of_messages_makes_two_writers",
        ),
    },
    "The disk": {
        "allocate without a record, or delay recorded containers": (
            "tests/integration/agent/test_full_disk.py::test_a_new_pod_does_not_hold_up_the_containers_of_others",
        ),
        "lose or double an allocation": (
            "tests/integration/agent/test_full_disk.py::TestStore::test_a_file_that_is_removed_is_written_again",
            "tests/robustness/fuzz/test_checkpoint.py::test_one_flipped_bit_of_a_journal",
            "tests/integration/agent/test_survives.py::test_a_broken_checkpoint_is_rebuilt_from_the_api",
            "tests/robustness/crash/test_kill.py::test_no_kill_loses_or_doubles_an_allocation",
        ),
    },
    "Hardware": {
        "give a pod or cordon another device by a stored ID": (
            "tests/unit/node_agent/devicemanager/test_stored_names.py::test_a_held_id_stays_with_its_device_whatever_the_kernel_numbers",
            "tests/unit/node_agent/devicemanager/test_stored_names.py::test_a_cordon_stays_with_its_device",
        ),
        "change or allocate devices through unreadable files": (
            "tests/unit/node_agent/plugins/generic/test_doubt.py::TestAnUnrelatedFile::test_what_was_found_counts_as_found",
            "tests/unit/node_agent/plugins/generic/test_doubt.py::TestAFileOfOneDevice::test_one_that_may_be_another_stays_as_it_was_for_a_minute",
        ),
    },
}
