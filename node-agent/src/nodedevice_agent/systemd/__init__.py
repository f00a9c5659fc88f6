"""What systemd needs to run the agent outside of pods: files only, which `nodedevice-agent systemd` prints and installs."""
