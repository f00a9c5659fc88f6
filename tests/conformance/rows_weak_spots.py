"""Where the kubelet's device manager is known to be weak, 29 lines: what users have reported, and what showed when it was run.

`stronger`: mended here, by a test that the kubelet's way fails. `same`: mended in the newest kubelet too, and kept so. The rest
says why it is not mended: mostly that a device plugin would have to speak another protocol.
"""

from tests.conformance.rows import kubelets, same, stronger

LEAKS = "Nothing leaks when an allocation fails"
HANGS = "A hung plugin blocks nobody"
HEALTH = "Health is reported for every container"
MACHINE = "machine:TestDeviceManager"

WEAK_SPOTS = (
    stronger(
        1,
        "two pods can get the same device while a third one's allocation fails",
        LEAKS,
        "adm:TestNotEnough.test_a_failing_pod_takes_back_all_and_only_what_it_reserved",
        "adm:TestAdvice.test_device_taken_while_the_plugin_thinks_is_not_given_twice",
        MACHINE,
    ),
    stronger(
        2,
        "devices stay reserved for nobody after an error",
        LEAKS,
        "purpose:test_an_empty_answer_leaks_nothing",
        "align:TestWaiting.test_nothing_stays_reserved_of_what_was_only_tried",
    ),
    stronger(
        3,
        "a plugin that hangs in Allocate stops all pods of the node",
        HANGS,
        "conn:TestAllocate.test_a_plugin_that_hangs_is_given_up",
        "pods:TestServed.test_while_one_plugin_is_asked_other_pods_are_served",
        "apods:test_a_plugin_that_hangs_holds_up_nobody_else",
    ),
    stronger(
        4,
        "a refused pod has failed for good",
        "A refused pod waits",
        "purpose:test_a_waiting_pod_is_served_by_itself",
        "node-reboot:test_plugins_that_are_late",
    ),
    stronger(
        5,
        "a restart fails running pods with init containers",
        "An admitted pod keeps its devices over a restart",
        "case:71",
        "align:TestRestart.test_held_devices_are_not_judged_again",
    ),
    stronger(
        6,
        "a lost checkpoint: pods run without devices",
        "An unreadable checkpoint loses nothing",
        "restart:TestLostCheckpoint.test_nothing_is_given_out_or_published_before_the_api_is_read",
        "survives:test_a_broken_checkpoint_is_set_aside_and_holders_come_back_from_the_api",
        "survives:test_a_checkpoint_that_is_gone_is_taken_from_the_api_too",
    ),
    stronger(
        7,
        "an old plugin's end is taken for the new one's",
        "The newest plugin's list counts",
        "plugins:TestRegistrationAgain.test_the_end_of_an_old_connection_harms_nobody",
        "agent:test_a_new_version_of_a_plugin_takes_over_without_a_gap",
    ),
    stronger(
        8,
        "registering again leaks connections",
        "A plugin may register again while it is connected",
        "purpose:test_a_plugin_may_register_twice",
        "again:test_only_one_connection_is_left_when_a_plugin_registers_again",
        "leaks:test_registering_again_leaves_nothing_behind",
    ),
    stronger(
        9,
        "a plugin has to notice the manager's restart, and some do not",
        "Plugins are reconnected after a restart",
        "again:test_a_plugin_that_never_registers_again_survives_every_restart",
    ),
    stronger(
        10,
        "lists of more than 4 MiB end the stream",
        "Device lists up to 131,072 devices",
        "purpose:test_a_list_of_five_mebibytes",
        "conn:TestDeviceLists.test_a_hundred_thousand_devices_come_in_one_message",
    ),
    stronger(
        11,
        "a broken device means nothing for its pod",
        HEALTH,
        "opopt:test_a_pod_whose_device_breaks_is_evicted_when_its_budget_allows",
        "opevents:test_the_pod_that_holds_a_broken_device_is_told_too",
    ),
    stronger(
        12,
        "a device that is gone is called healthy, a plugin's end is not told",
        HEALTH,
        "opod:test_health",
        "snap:test_devices_of_a_stopped_plugin_say_why",
        "purpose:test_a_held_device_that_is_no_longer_listed_still_shows",
    ),
    stronger(
        13,
        "which device a pod has is not in the API",
        "Allocations are in the API",
        "apods:test_a_pod_gets_devices_and_gives_them_back",
        "oppods:test_life_of_a_pod_with_devices",
    ),
    kubelets(
        14, "Allocate does not know the pod", "its message has no room for one, and plugins are to run as they are"
    ),
    kubelets(
        15, "no call when a device is given back", "the device plugin API has none; PreStartContainer is made use of"
    ),
    kubelets(
        16, "no sharing, whole numbers alone", "the plugin lists an ID for each share, as it does for the kubelet"
    ),
    stronger(
        17,
        "finished pods stay in the checkpoint",
        "Devices are free as soon as the pod is over",
        "purpose:test_a_pods_end_is_on_disk",
        "pods:TestEnd.test_devices_are_free_at_once_and_that_is_saved",
    ),
    stronger(
        18,
        "a resource's name never leaves the Node",
        "A name that is gone leaves the Node",
        "opcap:test_a_gone_resource_leaves_the_node_and_what_is_held_stays",
    ),
    stronger(
        19,
        "the Node's numbers are late, and wrong while a plugin restarts",
        "The advertised number never falls below what is in use",
        "opcap:test_each_change_of_the_numbers_reaches_the_node",
        "restart:TestFromCheckpoint.test_what_was_published_holds_until_the_plugin_lists",
        "reached:test_its_end_is_awaited_as_its_coming_was",
    ),
    kubelets(
        20,
        "what an init container had beyond its pod's needs is held to the end",
        "it runs again with a new sandbox, and has to find its devices",
    ),
    same(
        21,
        "hints cost the power of the machine's NUMA nodes",
        "hints:TestWhichNodes.test_a_machine_of_many_nodes_costs_by_those_that_have_devices",
    ),
    same(
        22,
        "it dies of maps that are written side by side",
        "adm:TestAdvice.test_pod_that_ended_while_the_plugin_thinks_is_forgotten",
        MACHINE,
    ),
    stronger(
        23,
        "after a reboot a pod has the answer for a device that is another by now",
        "Invalid settings are refused before the container is created",
        "adjust:test_refused_by_name",
        "pods:TestEnd.test_a_held_device_that_is_no_longer_listed_counts_until_the_end",
    ),
    stronger(
        24,
        "answers that contradict each other: the winner is random",
        "Contradicting answers are reported",
        "inject:TestRefused.test_two_plugins_want_one_thing",
        "edits:test_where_they_contradict_the_first_by_name_has_its_way_and_it_is_told",
        "node-answers:test_two_plugins_that_want_different_things",
    ),
    stronger(
        25,
        "it dies when a device leaves the list while its Allocate runs",
        "A device that vanishes while it is held harms nobody",
        "named:test_a_held_device_that_vanished_ends_the_kubelet",
        "pods:TestWhatHappensMeanwhile.test_another_device_is_chosen",
        "pods:TestWhatHappensMeanwhile.test_the_pod_waits_when_no_other_device_is_left",
    ),
    stronger(
        26,
        "a plugin that hangs in GetPreferredAllocation stops all pods of the node",
        HANGS,
        "conn:TestPreferred.test_a_plugin_that_hangs_is_given_up",
        "adm:TestNotEnough.test_two_pods_that_want_the_same_pair_of_advising_plugins_never_hold_each_other_up",
    ),
    stronger(
        27,
        "without a list, pods run without their device",
        "A plugin without a list gives nothing out",
        "plugins:TestStop.test_a_connected_plugin_without_a_list_counts_nothing_as_healthy",
        "inject:TestRefused.test_no_device_is_free",
        "node-closed:test_no_container_starts_without_its_device",
    ),
    stronger(
        28,
        "what plugins list and answer takes any amount of memory",
        "The number of plugins has a bound",
        "host:test_one_socket_has_so_many_connections_and_no_more",
        "conn:TestAllocate.test_an_answer_has_a_bound",
        "sizes:test_memory_has_a_bound",
        "status:TestBounds.test_one_pod_with_a_hundred_thousand_devices_fits",
    ),
    stronger(
        29,
        "sockets outside the directory are followed, and any bytes are an ID",
        "A socket lies in the plugin directory itself",
        "purpose:test_a_refused_endpoint_is_never_dialled",
        "devices:test_accepts_each_possible_id_once",
        "devices:test_whatever_is_listed_gives_a_short_printable_refusal_and_possible_ids",
    ),
)
