"""What the kubelet's own tests assert of its device manager, 106 lines, in the order in which its suites are read."""

from tests.conformance.rows import kubelets, on_a_node, same, stronger

SAME_NAME = "watcher:test_one_operation_at_a_time_and_nobody_waits_for_anothers"
STOPPED = "plugins:TestStop.test_all_devices_of_a_stopped_plugin_are_unhealthy_and_counted"
RANDOM = "random:test_random_sequences_end_alike"
LOGS = "its internals; what comes of them is compared by other lines"
THIRD = "third:test_the_agent_is_killed_and_started_again"
ADVERTISED = "The advertised number never falls below what is in use"

SCENARIOS = (
    same(1, "a manager can be made", "dir:test_is_made_for_root_alone_to_write"),
    same(
        2,
        "start, then stop twice",
        "dir:test_closing_twice_is_closing",
        "again:test_two_agents_never_share_a_directory",
    ),
    same(
        3, "the same with a watched directory", "watcher:test_sockets_that_were_there_before_and_in_folders_are_found"
    ),
    same(
        4,
        "2 devices, the same 2 by another plugin, then 1",
        "case:12",
        "plugins:TestRegistrationAgain.test_the_newest_is_asked",
    ),
    same(
        5, "the same through the watched directory", "watcher:test_a_recreated_socket_replaces_its_plugin_without_a_gap"
    ),
    same(6, "2 healthy, 1 unhealthy: 3 and 2", "case:19", RANDOM),
    same(7, "the unhealthy one goes: 2 and 2", RANDOM),
    same(8, "a healthy one breaks: 3 and 1", "case:21", RANDOM),
    same(9, "a healthy one goes: 2 and 0", RANDOM),
    same(10, "a second resource is independent", "plugins:TestRegistration.test_resources_are_independent"),
    stronger(
        11,
        "stopped for 5 minutes: gone",
        "Time passes as an event",
        "plugins:TestStop.test_grace_ends_after_five_minutes_as_an_event",
    ),
    same(
        12,
        "a stopped plugin is not called",
        "plugins:TestStop.test_nobody_is_asked_while_it_is_away_and_pods_are_served_when_it_is_back",
    ),
    same(13, "a stopped plugin: 3 and 0", "case:22", STOPPED),
    same(
        14,
        "written and read again: stopped, 0 and 0, still ours",
        "case:26",
        "purpose:test_each_goes_on_with_the_others_checkpoint",
    ),
    same(15, "allocatable devices of two resources", "lists:test_allocatable"),
    same(16, "a recovered device is allocatable again", "lists:test_a_device_that_recovers_is_allocatable_again"),
    same(
        17,
        "a checkpoint of five entries survives",
        "chk:test_what_is_written_is_read_back",
        "chk:test_a_kubelets_file_is_written_again_byte_for_byte",
    ),
    same(18, "a device of two nodes is near to both", "select:test_a_device_of_two_nodes_is_near_to_both"),
    same(19, "the rest is far", "select:test_near_devices_first"),
    same(20, "two resources for one container", "case:29"),
    stronger(21, "not enough: an error, counts unchanged", "A refused pod waits", "case:42"),
    same(22, "the last device is given", "case:42", RANDOM),
    stronger(23, "none healthy", "A refused pod waits", "case:39"),
    stronger(
        24,
        "unregistered",
        "A refused pod waits",
        "case:27",
        "plugins:TestRegistration.test_a_pod_that_asks_for_an_unknown_name_is_told_of_once_and_served_when_a_plugin_comes",
    ),
    stronger(25, "a former device is no longer healthy", "An admitted pod keeps its devices over a restart", "case:71"),
    same(
        26,
        "garbage collected while a plugin is asked for advice",
        "adm:TestAdvice.test_pod_that_ended_while_the_plugin_thinks_is_forgotten",
        "adm:TestAdvice.test_device_taken_while_the_plugin_thinks_is_not_given_twice",
    ),
    on_a_node(
        27,
        "what a container is started with",
        "node-devices:test_nodes_environment_and_mounts",
        "ckpt:TestContainers.test_what_a_container_starts_with",
    ),
    same(28, "init containers' devices in app containers", "case:31", "case:33"),
    same(29, "sidecars' devices are their own", "case:32"),
    kubelets(
        30,
        "the kubelet's own predicates see at least what is allocated",
        "the kubelet judges pods by the Node that the operator writes",
    ),
    stronger(
        31,
        "PreStartContainer with both devices",
        "PreStartContainer is called when the pod has its devices",
        "prestart:TestWhen.test_with_the_containers_devices_once_all_is_allocated",
    ),
    same(
        32,
        "not for a limit of 0",
        "prestart:TestWhen.test_not_for_a_container_without_devices",
        "purpose:test_a_limit_of_zero_asks_for_nothing",
    ),
    kubelets(33, "a node without a checkpoint was made anew", "the Node's other names are not ours to zero"),
    same(34, "hints while lists change", "align:test_whatever_the_order_of_answers_strict_means_strict"),
    same(35, "the same for the whole pod", "align:test_whatever_the_order_of_answers_strict_means_strict"),
    stronger(36, "health in the pod's status", "Health is reported for every container", "opod:test_health"),
    kubelets(
        37,
        "changes of health are queued, 100 at most",
        "nothing is queued: what is published is always the present state",
    ),
    same(
        38,
        "a name that a pod has through DRA is passed over",
        "pod:test_a_name_that_a_pod_has_through_dra_is_passed_over",
    ),
    same(39, "one that it has not through DRA is not", "pod:test_a_name_that_a_pod_has_through_dra_is_passed_over"),
    same(
        40,
        "a plugin's end makes all unhealthy; time clears everything",
        STOPPED,
        "plugins:TestStop.test_a_gone_resource_is_in_the_checkpoint_only_while_somebody_holds_a_device",
    ),
    stronger(
        41,
        "the same socket three times: one connection",
        "A plugin may register again while it is connected",
        "again:test_only_one_connection_is_left_when_a_plugin_registers_again",
        "leaks:test_registering_again_leaves_nothing_behind",
    ),
    same(
        42, "a failed registration leaves no connection", "reg:test_a_plugin_that_gives_up_waiting_leaves_nothing_open"
    ),
    same(43, "an endpoint can be made", "reg:test_is_answered_when_the_plugin_has_told_its_options"),
    same(44, "lists come whole and in order", "conn:TestDeviceLists.test_come_whole_and_in_order"),
    same(
        45,
        "Allocate's answer comes as it was",
        "conn:TestAllocate.test_asks_for_one_container_and_keeps_the_answer_as_it_came",
    ),
    same(46, "so does advice", "conn:TestPreferred.test_asks_as_it_is_told"),
    same(47, "a device of two nodes is told for both", "case:50", "alloc:test_ids_by_numa_node"),
    kubelets(48, "filters of device maps", LOGS),
    same(49, "merge of answers: nothing", "edits:test_nothing_is_nothing"),
    same(50, "merge of answers: CDI", "edits:test_one_answer_is_taken_as_it_is"),
    same(
        51,
        "merge of answers: CDI of two resources",
        "edits:test_two_resources_are_put_together_in_order_of_their_names",
    ),
    same(52, "merge of answers: CDI twice", "edits:test_a_cdi_device_named_twice_is_there_once_and_no_conflict"),
    same(
        53,
        "whose a device is",
        "alloc:test_holders_is_a_view_that_cannot_be_written",
        "alloc:test_the_same_id_of_two_resources_are_two_devices",
    ),
    same(54, "hints of a container", "hints:test_hints", "named:test_placement"),
    same(55, "hints of a pod", "align:TestPodScope.test_all_containers_together", "named:test_placement"),
    same(
        56,
        "near devices first, advice within them",
        "named:test_placement",
        "select:TestAdvice.test_is_followed_among_near_devices",
        RANDOM,
    ),
    same(57, "what a plugin is asked for advice about", "select:TestAdvice.test_what_the_plugin_is_asked", RANDOM),
    same(58, "what a pod asks for at once at most", "align:TestPodScope.test_what_a_pod_has_at_once_at_most"),
    same(59, "nodes that have devices", "hints:TestWhichNodes.test_only_those_that_have_devices"),
    same(
        60,
        "many nodes, few with devices",
        "hints:TestWhichNodes.test_a_machine_of_many_nodes_costs_by_those_that_have_devices",
    ),
    same(61, "merged with others' hints", "merge:test_merge", "merge:test_is_what_comes_of_every_combination"),
    same(
        62,
        "checkpoints: made, read, wrong",
        "purpose:test_checkpoints_of_all_ages",
        "file:TestReading.test_there_is_none",
    ),
    stronger(
        63, "a file from before NUMA nodes", "Checkpoints of version 1 are read", "purpose:test_checkpoints_of_all_ages"
    ),
    same(64, "sockets that come and go", "watcher:test_a_socket_that_appears_registers_and_one_that_goes_deregisters"),
    same(65, "many sockets of one name", SAME_NAME),
    same(66, "a socket made anew", "watcher:test_a_recreated_socket_replaces_its_plugin_without_a_gap"),
    same(67, "sockets that were there before", "watcher:test_sockets_that_were_there_before_and_in_folders_are_found"),
    same(
        68,
        "register, unregister, register again",
        "watcher:test_what_failed_is_tried_again",
        "watcher:test_a_socket_that_appears_registers_and_one_that_goes_deregisters",
    ),
    same(69, "one operation at a time for a socket", SAME_NAME),
    kubelets(70, "caches of desired and actual sockets", LOGS),
    same(
        71,
        "List: pods, devices, both, neither",
        "lists:test_no_pods",
        "lists:test_pods_without_devices_are_told_with_their_containers",
    ),
    same(72, "List: active pods alone", "podres:test_entries_vanish_when_the_pod_ends_and_asking_changes_nothing"),
    same(
        73,
        "List: sidecars, no init containers",
        "lists:test_sidecars_come_before_apps_and_init_containers_are_left_out",
    ),
    same(74, "allocatable resources", "lists:test_allocatable_tells_each_numa_node_of_each_resource"),
    same(75, "Get: a pod that is not there", "podres:test_an_unknown_pod_is_an_error_in_the_kubelets_words"),
    same(
        76,
        "Get: sidecars, no init containers",
        "podres:test_list_get_and_allocatable_of_a_pod_with_all_kinds_of_containers",
    ),
    same(77, "List of v1alpha1", "podres:test_list_get_and_allocatable_of_a_pod_with_all_kinds_of_containers"),
    stronger(
        78,
        "a resource is in capacity and allocatable",
        ADVERTISED,
        "opcap:test_each_change_of_the_numbers_reaches_the_node",
    ),
    stronger(
        79,
        "one that is gone: 0",
        "A name that is gone leaves the Node",
        "opcap:test_a_gone_resource_leaves_the_node_and_what_is_held_stays",
    ),
    same(80, "allocatable without capacity goes", "opcap:test_a_gone_resource_leaves_the_node_and_what_is_held_stays"),
    kubelets(81, "zeroed only without a checkpoint", "the Node's other names are not ours to zero"),
    kubelets(
        82, "names that the node lacks are dropped for the predicates", "the kubelet's admission of pods it was given"
    ),
    same(
        83,
        "a pod gets one device, and List says so",
        "podres:test_list_get_and_allocatable_of_a_pod_with_all_kinds_of_containers",
    ),
    on_a_node(
        84,
        "a CDI device of the plugin",
        "node-devices:test_by_cdi",
        "third:test_cdi_devices_are_those_in_the_plugins_own_file",
    ),
    on_a_node(
        85,
        "a container that starts again has its device, a second pod another",
        "node-devices:test_a_container_that_starts_again_has_the_same",
        "stack:test_pods_share_what_may_be_shared_and_nothing_else",
    ),
    on_a_node(
        86,
        "the manager restarts: same device",
        "node-restarts:test_what_runs_goes_on_and_what_comes_gets_another",
        "case:64",
        THIRD,
    ),
    same(
        87,
        "pod and manager restart",
        "kill:test_no_kill_loses_or_doubles_anything",
        "restart:TestFromCheckpoint.test_held_devices_are_not_given_out_again",
    ),
    same(
        88,
        "a pod that succeeded gets nothing again",
        "pods:TestEnd.test_a_pod_that_was_over_when_first_seen_gets_nothing",
    ),
    on_a_node(
        89,
        "the plugin restarts: same device",
        "node-restarts:test_what_runs_goes_on_and_what_comes_gets_another",
        "third:test_the_plugin_is_killed_and_started_again",
    ),
    on_a_node(
        90,
        "manager and plugin restart",
        "node-restarts:test_what_runs_goes_on_and_what_comes_gets_another",
        "third:test_both_are_killed_and_started_again",
    ),
    same(
        91,
        "an orphaned pod is cleaned away",
        "restart:TestFromCheckpoint.test_a_pod_that_is_gone_meanwhile_gives_its_devices_back",
    ),
    on_a_node(
        92,
        "init, sidecar and app; List shows two",
        "node-devices:test_a_sidecar_keeps_its_device",
        "case:32",
        "podres:test_list_get_and_allocatable_of_a_pod_with_all_kinds_of_containers",
    ),
    stronger(
        93,
        "reboot without the plugin: failed, not listed",
        "A refused pod waits",
        "node-reboot:test_plugins_that_are_late",
        "restart:TestFromCheckpoint.test_a_pod_that_was_waiting_waits_again",
    ),
    stronger(
        94,
        "the same, capacity 0",
        ADVERTISED,
        "restart:TestFromCheckpoint.test_what_was_published_holds_ten_seconds_at_most",
    ),
    same(
        95,
        "options fail: no resource",
        "reg:test_a_plugin_that_refuses_to_tell_its_options",
        "stack:test_registration_that_is_refused_harms_nobody",
    ),
    stronger(96, "one device: there, broken, there", ADVERTISED, "agent:test_changes_show", "cap:test_number_shown"),
    stronger(
        97,
        "it breaks under a pod, which goes on",
        ADVERTISED,
        "pods:TestEnd.test_a_broken_held_device_keeps_its_pod",
        "case:65",
    ),
    stronger(
        98,
        "four devices that come and go",
        ADVERTISED,
        "opcap:test_each_change_of_the_numbers_reaches_the_node",
        RANDOM,
    ),
    same(
        99,
        "a stream that fails at once",
        "plugins:TestRegistration.test_a_new_resource_is_saved_and_published_and_has_no_device_yet",
        "conn:TestDeviceLists.test_break_with_what_the_plugin_said",
    ),
    same(100, "a stream that fails later", STOPPED, "conn:TestDeviceLists.test_break_when_the_process_is_gone"),
    stronger(
        101,
        "a plugin that is stopped",
        "Time passes as an event",
        "plugins:TestStop.test_grace_ends_after_five_minutes_as_an_event",
        "agent:test_a_plugin_that_goes_and_one_that_comes_back",
    ),
    stronger(
        102,
        "health in the pod's status changes",
        "Health is reported for every container",
        "oppods:test_life_of_a_pod_with_devices",
    ),
    stronger(
        103, "also of a pod whose image cannot be had", "Health is reported for every container", "opod:test_health"
    ),
    same(
        104,
        "a device without topology has none, also after a restart",
        "chk:test_no_numa_node_reads_as_minus_1",
        "case:50",
    ),
    same(
        105,
        "too many List calls are refused",
        "podres:test_more_than_the_burst_is_rejected_in_the_kubelets_words",
        "rate:test_never_more_than_the_burst_and_the_rate_allow",
    ),
    same(106, "calls are counted in metrics", "podres:test_calls_and_errors_are_counted"),
)
