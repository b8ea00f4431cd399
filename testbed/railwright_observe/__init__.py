"""The dashboards on a local page, with the data of deployed pods and of jobs with faults."""
