"""Speaking to the API server, for every process of ours: client, informers, leader election."""
