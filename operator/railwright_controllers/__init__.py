"""The controllers: find the network and the hardware of nodes, and publish both."""
