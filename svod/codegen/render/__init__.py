"""codegen/render"""
