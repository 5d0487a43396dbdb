"""Models of toolkits: fairseq, OpenNMT-py, eole, JoeyNMT and Marian-nmt."""
