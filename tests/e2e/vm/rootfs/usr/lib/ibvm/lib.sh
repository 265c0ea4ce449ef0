# Sourced by init (plain guest) and run (systemd guest): the shares, the output port, the one command.

# Mounts every ibvm.share=TAG:PATH:ro|rw of the kernel's command line.
ibvm_mount_shares() {
  local word tag path mode cache
  for word in $(< /proc/cmdline); do
    case $word in ibvm.share=*) ;; *) continue ;; esac
    IFS=: read -r tag path mode <<< "${word#*=}"
    # A read-only share does not change while the guest runs; what the guest writes must arrive at once.
    cache=loose
    if [ "$mode" = rw ]; then cache=none; fi
    mkdir -p "$path"
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,cache=$cache,$mode" "$tag" "$path" ||
      echo "ibvm: cannot mount $tag on $path" > /dev/kmsg
  done
}

# The device of the virtio-serial port called ibvm.out.
ibvm_output_port() {
  local port
  for port in /sys/class/virtio-ports/*; do
    if [ "$(< "$port/name")" = ibvm.out ]; then
      echo "/dev/${port##*/}"
      return
    fi
  done
  echo /dev/console
}

# Runs /out/.ibvm/cmd; its output goes to the port, its exit code to /out/.ibvm/rc.
ibvm_run_command() {
  local port rc
  port=$(ibvm_output_port)
  cd /root || return
  HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash /out/.ibvm/cmd < /dev/null > "$port" 2>&1
  rc=$?
  echo $rc > /out/.ibvm/rc.new
  mv /out/.ibvm/rc.new /out/.ibvm/rc
}
