#!/bin/busybox sh
# vfio INTERFACE...: moves the cards of interfaces to vfio-pci, and prints their addresses.
for name; do
    at=$(readlink -f "/sys/class/net/$name/device")
    while [ "${at%/virtio*}" != "$at" ]; do at=${at%/virtio*}; done
    address=${at##*/}
    echo vfio-pci >"/sys/bus/pci/devices/$address/driver_override" || exit 1
    echo "$address" >"/sys/bus/pci/devices/$address/driver/unbind" || exit 1
    echo "$address" >/sys/bus/pci/drivers_probe || exit 1
    [ -e "/sys/bus/pci/drivers/vfio-pci/$address" ] || { echo "vfio-pci did not take $address"; exit 1; }
    echo "$name $address group $(basename "$(readlink "/sys/bus/pci/devices/$address/iommu_group")")"
done
